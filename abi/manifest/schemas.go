package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hostd/hostd/abi/schema"
)

// defs reads the module's $defs.
func (r *reader) defs(target *map[string]json.RawMessage) {
	var text json.RawMessage
	if !r.read("$defs", &text, optional) {
		return
	}
	members, err := object(join(r.path, "$defs"), text)
	if err != nil {
		r.err = err
		return
	}
	*target = members
}

// schema removes a schema from an object. It does not check the schema, because
// modules stored by an earlier release may have any value there. It returns nil
// if there is no schema.
func (r *reader) schema(name string) json.RawMessage {
	text := r.members[name]
	delete(r.members, name)
	return text
}

// HasSchemas reports whether the manifest has a schema for any payload.
func (m *Manifest) HasSchemas() bool {
	found := m.Defs != nil
	_ = m.schemas(func(string, *EntityType, json.RawMessage, bool) error {
		found = true
		return nil
	})
	return found
}

// CheckSchemas returns an *Error for the first schema of the manifest that
// nodes cannot check, that exceeds a limit, or that belongs to a type with the
// encoding bytes. Parse does not call it; the code that accepts an uploaded
// module does.
func (m *Manifest) CheckSchemas() error {
	if len(m.Defs) > MaxDefs {
		return &Error{"$defs", fmt.Sprintf("%d entries, limit %d", len(m.Defs), MaxDefs)}
	}
	weight := 0
	note := func(path string, s *schema.Schema, err error) error {
		if fault, is := errors.AsType[*schema.Error](err); is {
			if fault.Shared {
				return &Error{fault.Path, fault.Reason}
			}
			return &Error{schemaPath(path, fault.Path), fault.Reason}
		}
		if weight += s.Weight(); weight > MaxSchemaWeight {
			return &Error{path, fmt.Sprintf("is too large: the schemas of the module together weigh more than %d", MaxSchemaWeight)}
		}
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(m.Defs)) {
		s, err := schema.InspectShared(name, m.Defs)
		if err := note("$defs", s, err); err != nil {
			return err
		}
	}
	return m.schemas(func(path string, t *EntityType, text json.RawMessage, checked bool) error {
		if t.Encoding != JSON {
			return &Error{path, fmt.Sprintf("is only for types whose encoding is %q", JSON)}
		}
		compile := schema.Inspect
		if checked && !t.Unchecked {
			compile = schema.Compile
		}
		s, err := compile(text, m.Defs)
		return note(path, s, err)
	})
}

// schemaPath returns the path of a fault inside the schema at path.
func schemaPath(path, below string) string {
	if below == "" || below[0] == '[' {
		return path + below
	}
	return path + "." + below
}

// schemas calls each for every schema of the manifest's types, until a call
// fails. checked means that nodes check payloads against the schema.
func (m *Manifest) schemas(each func(path string, t *EntityType, text json.RawMessage, checked bool) error) error {
	for i := range m.EntityTypes {
		t := &m.EntityTypes[i]
		path := fmt.Sprintf("entityTypes[%d]", i)
		some := func(path string, text json.RawMessage, checked bool) error {
			if text == nil {
				return nil
			}
			return each(path, t, text, checked)
		}
		for _, list := range []struct {
			name  string
			names []Named
		}{{"commands", t.Commands}, {"queries", t.Queries}} {
			for j := range list.names {
				at := fmt.Sprintf("%s.%s[%d]", path, list.name, j)
				if err := some(at+".schema", list.names[j].Schema, true); err != nil {
					return err
				}
				if err := some(at+".reply", list.names[j].Reply, false); err != nil {
					return err
				}
			}
		}
		for j := range t.Events {
			if err := some(fmt.Sprintf("%s.events[%d].schema", path, j), t.Events[j].Schema, false); err != nil {
				return err
			}
		}
		if err := some(path+".state", t.State, false); err != nil {
			return err
		}
		for j := range t.ReadsStates {
			if err := some(fmt.Sprintf("%s.readsStates[%d].schema", path, j), t.ReadsStates[j].Schema, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// Schemas calls each for every schema of the manifest and its path, the schemas
// of $defs first, until a call fails.
func (m *Manifest) Schemas(each func(path string, text json.RawMessage) error) error {
	for _, name := range slices.Sorted(maps.Keys(m.Defs)) {
		if err := each("$defs."+name, m.Defs[name]); err != nil {
			return err
		}
	}
	return m.schemas(func(path string, _ *EntityType, text json.RawMessage, _ bool) error { return each(path, text) })
}
