package modules

import (
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/schema"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// inputsOf is what a type may be asked, by its manifest. A schema that does not
// compile holds nothing, and unread is told: a module that was stored by an
// earlier release may have anything there, and what a module has as a
// description need not be one that nodes can check.
func inputsOf(m *manifest.Manifest, about *manifest.EntityType, unread func(name string, err error)) entity.TypeInputs {
	in := entity.TypeInputs{Commands: names(about.Commands), Queries: names(about.Queries)}
	if about.Encoding != manifest.JSON {
		return in
	}
	compile := func(list []manifest.Named) map[string]*schema.Schema {
		out := map[string]*schema.Schema{}
		for _, one := range list {
			if one.Schema == nil {
				continue
			}
			s, err := schema.Compile(one.Schema, m.Defs)
			if err == nil {
				out[one.Name] = s
			} else {
				unread(one.Name, err)
			}
		}
		return out
	}
	checked := !about.Unchecked
	in.Forms = entity.PayloadForms{Commands: compile(about.Commands), Queries: compile(about.Queries), Checked: func() bool { return checked }}
	return in
}

// RefusalsOf says why a type with that manifest would not take a command, also
// one that clients may not send: request.ErrUnknownCommand or a
// *request.InvalidPayloadError, or nil. Schemas that do not compile hold
// nothing.
func RefusalsOf(m *manifest.Manifest, about *manifest.EntityType) func(*request.Request) error {
	t := entity.Type{TypeInputs: inputsOf(m, about, func(string, error) {})}
	return t.RefusesCommand
}

// inputs are those of a type that is served, with its settings.
func (t *Types) inputs(m *manifest.Manifest, about *manifest.EntityType) entity.TypeInputs {
	name, checked := about.Name, !about.Unchecked
	in := inputsOf(m, about, func(what string, err error) {
		if checked {
			t.logger.Warn("payloads are not checked: the schema is none that nodes keep to", "entity_type", name, "name", what, "error", err)
		}
	})
	// Nodes of the release before check nothing, and could not carry what is
	// refused.
	in.Forms.Checked = func() bool {
		return t.metadata.View().ClusterVersion() >= sharding.VersionSchemas && t.settings.Checked(name, checked)
	}
	in.Settings = func() string { return t.settings.Values(name) }
	return in
}
