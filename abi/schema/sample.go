package schema

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// sampleDepth limits how deep a sample follows nested schemas.
const sampleDepth = 6

// Sample draws a random text that matches the schema, for trying out a module.
// ok is false if no sample was found, for example because the schema has a
// pattern, which Sample does not draw.
func (s *Schema) Sample(random *rand.Rand) (text []byte, ok bool) {
	for range 8 {
		if text = []byte(sample(s.root, random, sampleDepth)); s.Check(text) == nil {
			return text, true
		}
	}
	return nil, false
}

// sample draws a text from a single walk of the schema. The text may fail to
// match, for example because several schemas apply to one value.
func sample(n *node, random *rand.Rand, depth int) string {
	if n.choice != nil {
		return n.choice.sample(random)
	}
	for _, list := range [][]*node{n.all, n.any, n.one} {
		if len(list) > 0 && depth > 0 && n.object == nil {
			return sample(list[random.IntN(len(list))], random, depth-1)
		}
	}
	possible := n.kinds
	if n.object != nil && random.IntN(8) > 0 {
		possible = kindObject
	}
	if possible == 0 {
		possible = kindInteger | kindString | kindNull
	}
	var each []func() string
	for _, k := range []struct {
		kind kinds
		draw func() string
	}{
		{kindNull, func() string { return "null" }},
		{kindBool, func() string { return strconv.FormatBool(random.IntN(2) == 0) }},
		{kindInteger, func() string { return n.number.sample(random) }},
		{kindNumber, func() string { return n.number.sample(random) }},
		{kindString, func() string { return n.sampleText(random) }},
		{kindArray, func() string { return n.array.sample(random, depth) }},
		{kindObject, func() string { return n.object.sample(random, depth) }},
	} {
		if possible&k.kind != 0 {
			each = append(each, k.draw)
		}
	}
	return each[random.IntN(len(each))]()
}

func (c *choice) sample(random *rand.Rand) string {
	all := make([]string, 0, len(c.names)+len(c.numbers))
	for _, name := range c.names {
		all = append(all, quoteJSON(name))
	}
	for i := range c.numbers {
		all = append(all, c.numbers[i].String())
	}
	if c.kinds&kindNull != 0 {
		all = append(all, "null")
	}
	for i, allowed := range c.truth {
		if allowed {
			all = append(all, strconv.FormatBool(i == 1))
		}
	}
	return all[random.IntN(len(all))]
}

func (r *numberRule) sample(random *rand.Rand) string {
	least, most := int64(1), int64(9)
	if r != nil {
		if r.least != nil {
			least = int64(r.least.float)
			most = max(most, least)
		}
		if r.above != nil {
			least = int64(r.above.float) + 1
			most = max(most, least)
		}
		if r.most != nil && r.most.float < float64(most) {
			most = int64(r.most.float)
			least = min(least, most)
		}
	}
	return strconv.FormatInt(least+random.Int64N(most-least+1), 10)
}

func (n *node) sampleText(random *rand.Rand) string {
	if n.format != noFormat {
		return `"` + strconv.Itoa(random.IntN(100)) + `"`
	}
	least, most := 1, 8
	if n.text != nil {
		least = max(least, n.text.least)
		if most = max(most, least); n.text.most >= 0 {
			most = min(most, n.text.most)
			least = min(least, most)
		}
	}
	return `"` + strings.Repeat("a", min(least+random.IntN(most-least+1), 1<<10)) + `"`
}

func (r *arrayRule) sample(random *rand.Rand, depth int) string {
	if r == nil {
		return "[]"
	}
	count := r.least
	if depth > 0 {
		count += random.IntN(3)
	}
	if r.most >= 0 {
		count = min(count, r.most)
	}
	var items []string
	for i := range min(count, 1<<10) {
		next := r.items
		if i < len(r.first) {
			next = r.first[i]
		}
		if next == nil {
			next = &node{}
		}
		items = append(items, sample(next, random, depth-1))
	}
	return "[" + strings.Join(items, ",") + "]"
}

func (r *objectRule) sample(random *rand.Rand, depth int) string {
	var members []string
	if r == nil {
		return "{}"
	}
	for i := range r.members {
		m := &r.members[i]
		if !r.required.has(i) && (depth <= 0 || random.IntN(4) == 0) {
			continue
		}
		next := m.node
		if next == nil {
			next = &node{}
		}
		members = append(members, quoteJSON(m.name)+":"+sample(next, random, depth-1))
	}
	return "{" + strings.Join(members, ",") + "}"
}

// quoteJSON returns a string as JSON text.
func quoteJSON(s string) string {
	out := []byte{'"'}
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', byte(c))
		case c < 0x20:
			out = fmt.Appendf(out, `\u%04x`, c)
		default:
			out = append(out, string(c)...)
		}
	}
	return string(append(out, '"'))
}
