package modules

import (
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/schema"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// inputsOf returns the commands and queries that a type accepts, by its
// manifest. A schema that does not compile is ignored and reported to unread.
// Such schemas exist because earlier releases stored any schema, and because a
// valid schema need not be enforceable by nodes.
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

// RefusalsOf returns a function that checks whether a type with this manifest
// accepts a command. It returns request.ErrUnknownCommand, a
// *request.InvalidPayloadError or nil. Internal commands are accepted. Schemas
// that do not compile are ignored.
func RefusalsOf(m *manifest.Manifest, about *manifest.EntityType) func(*request.Request) error {
	t := entity.Type{TypeInputs: inputsOf(m, about, func(string, error) {})}
	return t.RefusesCommand
}

// inputs returns the inputs of a served type, taking its settings into account.
func (t *Types) inputs(m *manifest.Manifest, about *manifest.EntityType) entity.TypeInputs {
	name, checked := about.Name, !about.Unchecked
	in := inputsOf(m, about, func(what string, err error) {
		if checked {
			t.logger.Warn("payloads are not checked: the schema is none that nodes keep to", "entity_type", name, "name", what, "error", err)
		}
	})
	// Nodes of the previous release do not validate, and could not transport the
	// rejection.
	in.Forms.Checked = func() bool {
		return t.metadata.View().ClusterVersion() >= sharding.VersionSchemas && t.settings.ValidatesPayloads(name, checked)
	}
	in.Settings = func() string { return t.settings.Values(name) }
	return in
}
