package schema

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// compiler compiles a document into nodes. A schema that is referred to several
// times is one node.
type compiler struct {
	doc      *doc
	nodes    map[string]*node // compiled nodes, by place
	order    []*node
	patterns int
	weight   int // total weight so far
	// describes allows keywords that are not checked, for schemas that only
	// describe values.
	describes bool
}

// compile compiles the schema at a place, and every schema that it refers to.
func (c *compiler) compile(p place, v any) (*Schema, error) {
	root, err := c.schema(p, v)
	if err != nil {
		return nil, err
	}
	if err := c.acyclic(); err != nil {
		return nil, err
	}
	return &Schema{root, c.weight + len(c.order)}, nil
}

// foreign lists keywords that change the meaning of other keywords, or that
// refer outside of the document.
var foreign = []string{"$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef", "$vocabulary"}

// unchecked lists keywords that cannot be checked in one pass, or not in
// bounded time.
var unchecked = []string{"unevaluatedItems", "unevaluatedProperties", "uniqueItems"}

const uncheckedText = `; with "validate": false in the type it may be a description`

// dialect is the only allowed value of $schema.
const dialect = "https://json-schema.org/draft/2020-12/schema"

func (c *compiler) schema(p place, v any) (*node, error) {
	if n, ok := c.nodes[p.key]; ok {
		return n, nil
	}
	if len(c.order) == MaxSchemas {
		return nil, p.fault("is more than %d schemas", MaxSchemas)
	}
	if p.depth > MaxDepth {
		return nil, p.fault("is deeper than %d schemas", MaxDepth)
	}
	n := &node{at: p}
	c.nodes[p.key] = n
	c.order = append(c.order, n)
	switch v := v.(type) {
	case bool:
		n.never = !v
		return n, nil
	case map[string]any:
		return n, c.fill(p, v, n)
	}
	return nil, p.fault("is neither an object nor true or false")
}

// below compiles a subschema.
func (c *compiler) below(p place, v any) (*node, error) {
	p.depth++
	return c.schema(p, v)
}

func (c *compiler) fill(p place, m map[string]any, n *node) error {
	for _, name := range foreign {
		if _, there := m[name]; there {
			return p.member(name).fault("is a keyword that module schemas do not support")
		}
	}
	for _, name := range unchecked {
		v, there := m[name]
		if _, isSwitch := v.(bool); there && !c.describes && (v != false || name != "uniqueItems") {
			return p.member(name).fault("is a keyword that nodes do not check" + uncheckedText)
		} else if there && !isSwitch {
			if _, err := c.one(p, m, name); err != nil {
				return err
			}
		}
	}
	if v, there := m["$schema"]; there && v != dialect {
		return p.member("$schema").fault("is not %q", dialect)
	}
	for _, read := range []func(*compiler, place, map[string]any, *node) error{
		(*compiler).kinds, (*compiler).choice, (*compiler).number, (*compiler).text, (*compiler).array, (*compiler).object, (*compiler).compileApplicators, (*compiler).definitions,
	} {
		if err := read(c, p, m, n); err != nil {
			return err
		}
	}
	return nil
}

// definitions are compiled even if no schema refers to them, so that their
// faults are reported now.
func (c *compiler) definitions(p place, m map[string]any, _ *node) error {
	_, err := c.each(p, m, defsName)
	return err
}

var kindNames = map[string]kinds{
	"null": kindNull, "boolean": kindBool, "object": kindObject, "array": kindArray, "number": kindNumber | kindInteger, "string": kindString, "integer": kindInteger,
}

func (c *compiler) kinds(p place, m map[string]any, n *node) error {
	v, there := m["type"]
	if !there {
		return nil
	}
	list, many := v.([]any)
	if !many {
		list = []any{v}
	}
	for _, one := range list {
		name, _ := one.(string)
		k, known := kindNames[name]
		if !known {
			return p.member("type").fault("is not array, boolean, integer, null, number, object, string or a list of these")
		}
		n.kinds |= k
	}
	if len(list) == 0 {
		return p.member("type").fault("is an empty list")
	}
	switch m["format"] {
	case "int64":
		n.format = int64Format
	case "uint64":
		n.format = uint64Format
	}
	return nil
}

func (c *compiler) choice(p place, m map[string]any, n *node) error {
	values, there := m["enum"]
	list, isList := values.([]any)
	switch {
	case there && (!isList || len(list) == 0):
		return p.member("enum").fault("is not a list of values")
	case len(list) > MaxEnum:
		return p.member("enum").fault("has %d values, limit %d", len(list), MaxEnum)
	}
	if only, is := m["const"]; is {
		if there {
			return p.fault("has both enum and const")
		}
		list, there = []any{only}, true
	}
	if !there {
		return nil
	}
	n.choice = &choice{text: map[string]struct{}{}}
	c.weight += len(list)
	for i, v := range list {
		switch v := v.(type) {
		case string:
			n.choice.text[v] = struct{}{}
			n.choice.names = append(n.choice.names, v)
		case json.Number:
			n.choice.numbers = append(n.choice.numbers, parseNumber([]byte(v)))
		case bool:
			n.choice.kinds |= kindBool
			n.choice.truth[truth(v)] = true
		case nil:
			n.choice.kinds |= kindNull
		case []any, map[string]any:
			if !c.describes {
				return p.member("enum").element(i).fault("is a list or an object, which nodes do not compare" + uncheckedText)
			}
		}
	}
	return nil
}

func truth(v bool) int {
	if v {
		return 1
	}
	return 0
}

func (c *compiler) number(p place, m map[string]any, n *node) error {
	var r numberRule
	for _, k := range []struct {
		name string
		to   **number
	}{{"minimum", &r.least}, {"maximum", &r.most}, {"exclusiveMinimum", &r.above}, {"exclusiveMaximum", &r.below}, {"multipleOf", &r.multipleOf}} {
		v, there := m[k.name]
		if !there {
			continue
		}
		text, is := v.(json.Number)
		if !is {
			return p.member(k.name).fault("is not a number")
		}
		value := parseNumber([]byte(text))
		*k.to, n.number = &value, &r
	}
	if r.multipleOf != nil && r.multipleOf.float <= 0 {
		return p.member("multipleOf").fault("is not above 0")
	}
	return nil
}

func (c *compiler) text(p place, m map[string]any, n *node) error {
	r := textRule{most: -1}
	some, err := counts(p, m, "minLength", &r.least, "maxLength", &r.most)
	if err != nil {
		return err
	}
	if v, there := m["pattern"]; there {
		if r.pattern, err = c.pattern(p.member("pattern"), v); err != nil {
			return err
		}
		some = true
	}
	if some {
		n.text = &r
	}
	return nil
}

func (c *compiler) pattern(p place, v any) (*pattern, error) {
	text, is := v.(string)
	switch {
	case !is:
		return nil, p.fault("is not a string")
	case len(text) > MaxPatternBytes:
		return nil, p.fault("has %d bytes, limit %d", len(text), MaxPatternBytes)
	}
	if c.patterns++; c.patterns > MaxPatterns {
		return nil, p.fault("is more than %d patterns", MaxPatterns)
	}
	compiled, tooLong, err := compilePattern(text)
	switch {
	case tooLong:
		return nil, p.fault("compiles to more than %d instructions: its repetitions are too long", MaxPatternCode)
	case err != nil:
		return nil, p.fault("is not a regular expression in RE2 syntax")
	}
	c.weight += len(compiled.code.Inst) / 8
	return compiled, nil
}

// counts reads a pair of a lower and an upper bound.
func counts(p place, m map[string]any, least string, to *int, most string, until *int) (some bool, err error) {
	for _, k := range []struct {
		name string
		to   *int
	}{{least, to}, {most, until}} {
		v, there := m[k.name]
		if !there {
			continue
		}
		text, is := v.(json.Number)
		n := number{}
		if is {
			n = parseNumber([]byte(text))
		}
		things, whole := n.integer()
		if !is || !whole || n.negative && things > 0 || things > 1<<31-1 {
			return false, p.member(k.name).fault("is not a count: an integer from 0 to 2147483647")
		}
		*k.to, some = int(things), true
	}
	return some, nil
}

func (c *compiler) array(p place, m map[string]any, n *node) error {
	r := arrayRule{most: -1, leastHits: 1, mostHits: -1}
	some, err := counts(p, m, "minItems", &r.least, "maxItems", &r.most)
	if err != nil {
		return err
	}
	if r.first, err = c.list(p, m, "prefixItems"); err != nil {
		return err
	}
	if r.items, err = c.one(p, m, "items"); err != nil {
		return err
	}
	if r.contains, err = c.one(p, m, "contains"); err != nil {
		return err
	}
	if r.contains != nil {
		if _, err = counts(p, m, "minContains", &r.leastHits, "maxContains", &r.mostHits); err != nil {
			return err
		}
	}
	if some || r.first != nil || r.items != nil || r.contains != nil {
		n.array = &r
	}
	return nil
}

func (c *compiler) compileApplicators(p place, m map[string]any, n *node) (err error) {
	if n.all, err = c.list(p, m, "allOf"); err != nil {
		return err
	}
	if n.any, err = c.list(p, m, "anyOf"); err != nil {
		return err
	}
	if n.one, err = c.list(p, m, "oneOf"); err != nil {
		return err
	}
	for _, k := range []struct {
		name string
		to   **node
	}{{"not", &n.not}, {"if", &n.when}, {"then", &n.then}, {"else", &n.other}} {
		if *k.to, err = c.one(p, m, k.name); err != nil {
			return err
		}
	}
	v, there := m["$ref"]
	if !there {
		return nil
	}
	ref, is := v.(string)
	if !is {
		return p.member("$ref").fault("is not a string")
	}
	if p.shared && !strings.HasPrefix(ref, "#/"+defsName+"/") {
		return p.member("$ref").fault("points outside the module's %s, which several schemas share", defsName)
	}
	target, at, err := c.doc.resolve(ref)
	if err != nil {
		return p.member("$ref").fault("%v", err)
	}
	to, err := c.schema(at, target)
	if err == nil {
		n.all = append(n.all, to)
	}
	return err
}

// one compiles the schema of a keyword; nil if it is missing.
func (c *compiler) one(p place, m map[string]any, name string) (*node, error) {
	v, there := m[name]
	if !there {
		return nil, nil
	}
	return c.below(p.member(name), v)
}

func (c *compiler) list(p place, m map[string]any, name string) ([]*node, error) {
	v, there := m[name]
	if !there {
		return nil, nil
	}
	list, is := v.([]any)
	if !is || len(list) == 0 {
		return nil, p.member(name).fault("is not a list of schemas")
	}
	var out []*node
	for i := range list {
		n, err := c.below(p.member(name).element(i), list[i])
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// each compiles the named schemas of a keyword.
func (c *compiler) each(p place, m map[string]any, name string) (map[string]*node, error) {
	v, there := m[name]
	if !there {
		return nil, nil
	}
	members, is := v.(map[string]any)
	if !is {
		return nil, p.member(name).fault("is not an object")
	}
	out := make(map[string]*node, len(members))
	for _, key := range slices.Sorted(maps.Keys(members)) {
		var err error
		if out[key], err = c.below(p.member(name).member(key), members[key]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// acyclic rejects a schema that applies itself, directly or through other
// schemas, to the value that is being checked, because such a check would never
// end.
func (c *compiler) acyclic() error {
	const under, done = 1, 2
	state := map[*node]int{}
	var visit func(n *node) error
	visit = func(n *node) error {
		switch {
		case n == nil || state[n] == done:
			return nil
		case state[n] == under:
			return n.at.fault("refers to itself without a member or an item in between")
		}
		state[n] = under
		for _, next := range n.sameValue() {
			if err := visit(next); err != nil {
				return err
			}
		}
		state[n] = done
		return nil
	}
	for _, n := range c.order {
		if err := visit(n); err != nil {
			return err
		}
	}
	return nil
}

// sameValue returns the schemas that n applies to its own value.
func (n *node) sameValue() []*node {
	out := append([]*node{n.not, n.when, n.then, n.other}, n.all...)
	out = append(append(out, n.any...), n.one...)
	if n.object != nil {
		for _, d := range n.object.dependent {
			out = append(out, d.node)
		}
	}
	return out
}
