package modules

import (
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/schema"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// inputsOf returns the commands and queries that a type accepts, by its
// manifest. A schema that does not compile is ignored and passed to unread.
// Such schemas exist because earlier releases stored any schema, and because
// nodes cannot enforce every valid schema.
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
	in.Forms = entity.PayloadForms{Commands: compile(about.Commands), Queries: compile(about.Queries)}
	return in
}

// RefusalsOf returns a function that checks whether a type with this manifest
// accepts a command. It returns request.ErrUnknownCommand, a
// *request.InvalidPayloadError or nil. Internal commands are accepted. Schemas
// that do not compile are ignored.
func RefusalsOf(m *manifest.Manifest, about *manifest.EntityType) func(*request.Request) error {
	t := entity.Type{TypeInputs: inputsOf(m, about, func(string, error) {})}
	if about.Unchecked {
		t.Forms = entity.PayloadForms{}
	}
	return t.RefusesCommand
}

// inputs returns the inputs of a served type, taking its settings into account.
func (t *Types) inputs(m *manifest.Manifest, about *manifest.EntityType) entity.TypeInputs {
	name, checked := about.Name, !about.Unchecked
	in := inputsOf(m, about, func(what string, err error) {
		if checked {
			t.logger.Warn("payloads are not validated, because the node does not support the schema", "entity_type", name, "name", what, "error", err)
		}
	})
	in.Settings = inputSettings{t, name, checked}
	return in
}

// inputSettings are the settings of a served type for its guests.
type inputSettings struct {
	types   *Types
	name    string
	checked bool // whether the manifest requires checks
}

// Values returns the settings as the content of a frame.
func (s inputSettings) Values() string { return s.types.settings.Values(s.name) }

// ValidatesPayloads reports whether payloads are checked. Nodes of the previous
// release do not validate, and could not transport the rejection.
func (s inputSettings) ValidatesPayloads() bool {
	return s.types.metadata.View().ClusterVersion() >= sharding.VersionSchemas && s.types.settings.ValidatesPayloads(s.name, s.checked)
}
