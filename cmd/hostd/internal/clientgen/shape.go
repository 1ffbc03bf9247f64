package clientgen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// kind is the kind of a value, as far as the type systems of programming
// languages can express it.
type kind int

const (
	anything kind = iota
	nothing
	null
	boolean
	integer
	number
	text
	literal   // one value
	list      // elements are item
	tuple     // elements are of, in order, then item; nil means no more
	mapping   // object whose members all have the shape item
	object    // object with the given fields
	union     // one of
	all       // intersection
	reference // reference to a declaration
)

// shape is the part of a schema that type systems can express.
type shape struct {
	kind   kind
	of     []*shape
	item   *shape
	fields []field
	value  any    // value of a literal
	name   string // name of the declaration that a reference names
	format string // format of an integer or of a string
}

// field is a member of an object.
type field struct {
	name     string
	required bool
	shape    *shape
	doc      string
}

// declaration is a shape with a name.
type declaration struct {
	name  string
	shape *shape
	doc   string
}

// document is a complete schema, which references are relative to.
type document struct {
	key  string // unique among the documents of the client
	root any
	name string // name of its declaration
}

// shapes converts the schemas of a client's types to shapes. Each referenced
// schema is declared once.
type shapes struct {
	names    names
	module   Module
	declared []*declaration
	known    map[string]string // names of declarations, by document and pointer
}

func newShapes(taken names) *shapes { return &shapes{names: taken, known: map[string]string{}} }

// declare declares the shape of a schema under a name, and returns a reference
// to it. A missing schema allows any value, which needs no name.
func (s *shapes) declare(m Module, schema json.RawMessage, words ...string) (*shape, error) {
	if schema == nil {
		return &shape{kind: anything}, nil
	}
	s.module = m
	root, err := decode(schema)
	if err != nil {
		return nil, err
	}
	if only, ok := root.(map[string]any); ok && len(only) == 1 && only["$ref"] != nil && only["$ref"] != "#" {
		return s.refer(document{key: strings.Join(words, "\x00"), root: root, name: pascal(words...)}, only["$ref"])
	}
	doc := document{key: m.Digest + "\x00" + strings.Join(words, "\x00"), root: root, name: s.names.take(pascal(words...))}
	return s.add(doc, "", doc.name, root)
}

// add declares the schema at a pointer in a document.
func (s *shapes) add(doc document, pointer, name string, schema any) (*shape, error) {
	d := &declaration{name: name, doc: describe(schema)}
	s.known[doc.key+"#"+pointer] = name
	s.declared = append(s.declared, d)
	var err error
	d.shape, err = s.of(doc, schema)
	return &shape{kind: reference, name: name}, err
}

func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

func describe(schema any) string {
	m, _ := schema.(map[string]any)
	for _, name := range []string{"description", "title"} {
		if said, ok := m[name].(string); ok {
			return line(said)
		}
	}
	return ""
}

// refer returns the declaration of a reference's target, and adds it if there
// is none yet.
func (s *shapes) refer(doc document, ref any) (*shape, error) {
	pointer, _ := ref.(string)
	pointer, ok := strings.CutPrefix(pointer, "#")
	if !ok {
		return nil, fmt.Errorf("the reference %v points outside of the module", ref)
	}
	tokens := strings.Split(pointer, "/")[1:]
	for i := range tokens {
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(tokens[i])
	}
	own, _ := doc.root.(map[string]any)
	if len(tokens) >= 2 && tokens[0] == "$defs" {
		mine, _ := own["$defs"].(map[string]any)
		if _, is := mine[tokens[1]]; !is {
			root, err := decode(s.module.Manifest.Defs[tokens[1]])
			if err != nil {
				return nil, fmt.Errorf("the reference %v has no target", ref)
			}
			doc = document{key: s.module.Digest + "\x00$defs\x00" + tokens[1], root: root, name: pascal(tokens[1])}
			tokens = tokens[2:]
			pointer = strings.TrimPrefix(pointer, "/$defs/"+strings.Split(pointer, "/")[2])
			if name, ok := s.known[doc.key+"#"+pointer]; ok {
				return &shape{kind: reference, name: name}, nil
			}
			if len(tokens) == 0 {
				return s.add(doc, pointer, s.names.take(doc.name), root)
			}
		}
	}
	if name, ok := s.known[doc.key+"#"+pointer]; ok {
		return &shape{kind: reference, name: name}, nil
	}
	at := doc.root
	for _, token := range tokens {
		at = step(at, token)
	}
	if at == nil {
		return nil, fmt.Errorf("the reference %v has no target", ref)
	}
	words := []string{doc.name}
	for _, token := range tokens {
		if token != "$defs" && token != "properties" {
			words = append(words, token)
		}
	}
	return s.add(doc, pointer, s.names.take(pascal(words...)), at)
}

func step(at any, token string) any {
	switch v := at.(type) {
	case map[string]any:
		return v[token]
	case []any:
		if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(v) {
			return v[i]
		}
	}
	return nil
}

// of returns the shape of a schema. It ignores constraints that types cannot
// express, because a node checks them.
func (s *shapes) of(doc document, schema any) (*shape, error) {
	m, ok := schema.(map[string]any)
	if !ok {
		if schema == false {
			return &shape{kind: nothing}, nil
		}
		return &shape{kind: anything}, nil
	}
	var parts []*shape
	if ref, ok := m["$ref"]; ok {
		to, err := s.refer(doc, ref)
		if err != nil {
			return nil, err
		}
		parts = append(parts, to)
	}
	if value, ok := m["const"]; ok {
		parts = append(parts, &shape{kind: literal, value: value})
	} else if values, ok := m["enum"].([]any); ok {
		one := &shape{kind: union}
		for _, v := range values {
			one.of = append(one.of, &shape{kind: literal, value: v})
		}
		parts = append(parts, one)
	} else if base, err := s.base(doc, m); err != nil {
		return nil, err
	} else if base.kind != anything {
		parts = append(parts, base)
	}
	for _, name := range []string{"anyOf", "oneOf", "allOf"} {
		list, ok := m[name].([]any)
		if !ok {
			continue
		}
		of := &shape{kind: union}
		if name == "allOf" {
			of.kind = all
		}
		for _, one := range list {
			part, err := s.of(doc, one)
			if err != nil {
				return nil, err
			}
			of.of = append(of.of, part)
		}
		parts = append(parts, of)
	}
	switch len(parts) {
	case 0:
		return &shape{kind: anything}, nil
	case 1:
		return parts[0], nil
	}
	return &shape{kind: all, of: parts}, nil
}

// base returns the shape from the keyword type and the members of objects and
// lists.
func (s *shapes) base(doc document, m map[string]any) (*shape, error) {
	var types []string
	switch v := m["type"].(type) {
	case string:
		types = []string{v}
	case []any:
		for _, t := range v {
			name, _ := t.(string)
			types = append(types, name)
		}
	default:
		switch {
		case m["properties"] != nil || m["required"] != nil:
			types = []string{"object"}
		case m["items"] != nil || m["prefixItems"] != nil:
			types = []string{"array"}
		}
	}
	format, _ := m["format"].(string)
	one := &shape{kind: union}
	for _, t := range types {
		part := &shape{format: format}
		var err error
		switch t {
		case "null":
			part.kind = null
		case "boolean":
			part.kind = boolean
		case "integer":
			part.kind = integer
		case "number":
			part.kind = number
		case "string":
			part.kind = text
		case "array":
			err = s.list(doc, m, part)
		case "object":
			err = s.object(doc, m, part)
		}
		if err != nil {
			return nil, err
		}
		one.of = append(one.of, part)
	}
	switch len(one.of) {
	case 0:
		return &shape{kind: anything}, nil
	case 1:
		return one.of[0], nil
	}
	return one, nil
}

func (s *shapes) list(doc document, m map[string]any, to *shape) error {
	to.kind = list
	var err error
	if first, ok := m["prefixItems"].([]any); ok {
		to.kind = tuple
		for _, one := range first {
			part, err := s.of(doc, one)
			if err != nil {
				return err
			}
			to.of = append(to.of, part)
		}
		if m["items"] == false {
			return nil
		}
	}
	to.item, err = s.of(doc, m["items"])
	return err
}

func (s *shapes) object(doc document, m map[string]any, to *shape) error {
	members, _ := m["properties"].(map[string]any)
	needed := map[string]bool{}
	wanted, _ := m["required"].([]any)
	for _, name := range wanted {
		if name, ok := name.(string); ok {
			needed[name] = true
		}
	}
	if len(members) == 0 && len(needed) == 0 {
		to.kind = mapping
		var err error
		to.item, err = s.of(doc, m["additionalProperties"])
		return err
	}
	to.kind = object
	for name := range needed {
		if _, ok := members[name]; !ok {
			to.fields = append(to.fields, field{name: name, required: true, shape: &shape{kind: anything}})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		part, err := s.of(doc, members[name])
		if err != nil {
			return err
		}
		to.fields = append(to.fields, field{name: name, required: needed[name], shape: part, doc: describe(members[name])})
	}
	slices.SortFunc(to.fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return nil
}
