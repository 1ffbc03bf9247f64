package modules

import (
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/schema"
	"github.com/hostd/hostd/host/entity/binding"
	"github.com/hostd/hostd/sharding"
)

// forms compiles the schemas of a type's commands and queries. One that does
// not compile holds nothing: a module that was stored by an earlier release may
// have anything there, and what a module has as a description need not be one
// that nodes can check.
func (t *Types) forms(m *manifest.Manifest, about *manifest.EntityType) binding.Forms {
	if about.Encoding != manifest.JSON {
		return binding.Forms{}
	}
	name, checked := about.Name, !about.Unchecked
	compile := func(list []manifest.Named) map[string]*schema.Schema {
		out := map[string]*schema.Schema{}
		for _, one := range list {
			if one.Schema == nil {
				continue
			}
			s, err := schema.Compile(one.Schema, m.Defs)
			if err == nil {
				out[one.Name] = s
			} else if checked {
				t.logger.Warn("payloads are not checked: the schema is none that nodes keep to", "entity_type", name, "name", one.Name, "error", err)
			}
		}
		return out
	}
	return binding.Forms{
		Commands: compile(about.Commands), Queries: compile(about.Queries),
		// Nodes of the release before check nothing, and could not carry what is
		// refused.
		Checked: func() bool {
			return t.metadata.View().Level() >= sharding.LevelSchemas && t.settings.Checked(name, checked)
		},
	}
}
