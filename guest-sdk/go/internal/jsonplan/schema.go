package jsonplan

import (
	"reflect"
	"strconv"
)

// Form says which values of a type a schema describes.
type Form uint8

const (
	// Given describes the values that the type decodes, which other programs
	// encode.
	Given Form = iota
	// Closed is like Given, but allows no unknown members.
	Closed
	// Written describes values as Append encodes them.
	Written
)

// Schemas generates the JSON Schemas of plans, with their shared definitions.
type Schemas struct {
	names map[shared]string
	taken map[string]bool
	defs  []byte
}

// shared identifies the definition of a recursive type in one form.
type shared struct {
	typ  reflect.Type
	form Form
}

// schemaFields is the maximum number of members that a schema may name.
const schemaFields = 256

// Of appends the schema of a plan's values. In the form Given, a value may be
// null if no member is required, because null stands for a missing payload.
func (s *Schemas) Of(dst []byte, p *Plan, form Form) []byte {
	null := form != Written
	for i := range p.root.fields {
		null = null && !p.root.fields[i].tag.required
	}
	return s.value(dst, p.root, form, &tag{}, null)
}

// Defs returns the object of the definitions so far; nil if there are none.
func (s *Schemas) Defs() []byte {
	if s.defs == nil {
		return nil
	}
	return append(append([]byte("{"), s.defs[1:]...), '}')
}

func (s *Schemas) value(dst []byte, n *node, form Form, t *tag, null bool) []byte {
	for n.op == opPointer {
		n, null = n.elem, true
	}
	if n.op == opJSONMethods {
		if own, ok := reflect.New(n.typ).Interface().(interface{ JSONSchema() string }); ok {
			return append(dst, own.JSONSchema()...)
		}
		return append(t.append(append(dst, '{'), n, null), '}')
	}
	dst = append(dst, '{')
	switch {
	case n.op == opStruct && n.within(n, map[*node]bool{}):
		ref := `{"$ref":"#/$defs/` + s.define(n, form) + `"}`
		if null {
			ref = `"anyOf":[{"type":"null"},` + ref + `]`
		} else {
			ref = ref[1 : len(ref)-1]
		}
		dst = append(dst, ref...)
	default:
		dst = s.plain(dst, n, form, null)
	}
	return append(t.append(dst, n, null), '}')
}

// plain appends the keywords for a type to dst, without references to shared
// definitions.
func (s *Schemas) plain(dst []byte, n *node, form Form, null bool) []byte {
	types, rest := "", ""
	switch n.op {
	case opBool:
		types = `"boolean"`
	case opInt8, opInt16, opInt32, opUint8, opUint16, opUint32:
		types = `"integer"`
	case opInt64:
		types, rest = `"integer","string"`, `,"format":"int64"`
	case opUint64:
		types, rest = `"integer","string"`, `,"format":"uint64"`
	case opFloat32, opFloat64:
		types = `"number"`
	case opString, opTextMethods:
		types = `"string"`
	case opBytes:
		types, rest, null = `"string"`, `,"contentEncoding":"base64"`, true
	case opSlice, opArray:
		null = null || n.op == opSlice
		types, rest = `"array"`, `,"items":`+string(s.value(nil, n.elem, form, &tag{}, false))
	case opMap:
		types, rest, null = `"object"`, `,"additionalProperties":`+string(s.value(nil, n.elem, form, &tag{}, false)), true
	case opStruct:
		types, rest = `"object"`, string(s.members(nil, n, form))
	}
	if null {
		types += `,"null"`
	}
	dst = append(dst, `"type":`...)
	if single := types[1 : len(types)-1]; plainText(single, 0) == len(single) {
		return append(append(dst, types...), rest...)
	}
	dst = append(append(append(dst, '['), types...), ']')
	return append(dst, rest...)
}

func (s *Schemas) members(dst []byte, n *node, form Form) []byte {
	if len(n.fields) > schemaFields {
		return dst
	}
	dst = append(dst, `,"properties":{`...)
	var needed []byte
	for i := range n.fields {
		f := &n.fields[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, f.key...)
		dst = s.value(dst, f.node, form, &f.tag, false)
		if f.tag.required || form == Written && !f.omitEmpty {
			needed = append(append(needed, ','), f.key[:len(f.key)-1]...)
		}
	}
	dst = append(dst, '}')
	if needed != nil {
		dst = append(append(append(dst, `,"required":[`...), needed[1:]...), ']')
	}
	if form == Closed {
		dst = append(dst, `,"additionalProperties":false`...)
	}
	return dst
}

// within reports whether a node contains itself.
func (n *node) within(at *node, seen map[*node]bool) bool {
	if seen[at] {
		return false
	}
	seen[at] = true
	if at.elem != nil && (at.elem == n || n.within(at.elem, seen)) {
		return true
	}
	for i := range at.fields {
		if next := at.fields[i].node; next == n || n.within(next, seen) {
			return true
		}
	}
	return false
}

// define adds a definition of a recursive type and returns its name.
func (s *Schemas) define(n *node, form Form) string {
	key := shared{n.typ, form}
	if name, ok := s.names[key]; ok {
		return name
	}
	name := [...]string{"Given", "", "Written"}[form]
	for _, c := range []byte(n.typ.Name()) {
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			c = '_'
		}
		name += string(c)
	}
	for i := 2; s.taken[name]; i++ {
		name += "_" + strconv.Itoa(i)
	}
	if s.names == nil {
		s.names, s.taken = make(map[shared]string), make(map[string]bool)
	}
	s.names[key], s.taken[name] = name, true
	text := append(s.plain([]byte{'{'}, n, form, false), '}') // may add definitions
	s.defs = append(append(append(append(s.defs, `,"`...), name...), `":`...), text...)
	return name
}
