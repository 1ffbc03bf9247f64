package diff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// use says who reads and who writes the values of a schema.
type use struct {
	takes bool // the later module reads values that were written for the earlier one
	gives bool // programs that read the earlier module's values also read the later module's
}

var (
	taken  = use{takes: true}              // payloads of commands and queries
	given  = use{gives: true}              // replies
	stored = use{takes: true, gives: true} // events and states
)

// defs are a manifest's $defs.
type defs struct{ of map[string]json.RawMessage }

// pair identifies two references that are compared with each other for the same
// use.
type pair struct {
	old, now string
	use
}

const refPrefix = "#/$defs/"

// maxWhere limits the depth of the comparison, as the length of a path in
// bytes.
const maxWhere = 2048

// resolve follows references, at most as many as there are $defs.
func (d defs) resolve(s json.RawMessage) (schema map[string]json.RawMessage, ref string) {
	for range len(d.of) + 1 {
		schema = nil
		if json.Unmarshal(s, &schema) != nil {
			return nil, ref // true, false, or missing
		}
		var to string
		if json.Unmarshal(schema["$ref"], &to) != nil || !strings.HasPrefix(to, refPrefix) {
			return schema, ref
		}
		ref = to
		s = d.of[strings.TrimPrefix(to, refPrefix)]
	}
	return schema, ref
}

// schema compares the values that two schemas allow, member by member.
func (d *differ) schema(where string, was, is json.RawMessage, u use) {
	if bytes.Equal(was, is) && len(d.old.of) == 0 && len(d.now.of) == 0 || len(where) > maxWhere {
		return
	}
	if was == nil || is == nil {
		switch {
		case was == nil && is != nil:
			d.add(where, "added the schema", u.takes)
		case was != nil && is == nil:
			d.add(where, "removed the schema", u.gives)
		}
		return
	}
	a, from := d.old.resolve(was)
	b, to := d.now.resolve(is)
	if from != "" || to != "" {
		p := pair{from, to, u}
		if d.seen[p] {
			return
		}
		d.seen[p] = true
	}
	d.compareAllowed(where, "type", typesOf(a), typesOf(b), u)
	d.compareAllowed(where, "value", valuesOf(a), valuesOf(b), u)
	d.properties(where, a, b, u)
	if a["items"] != nil || b["items"] != nil {
		d.schema(where+"[]", a["items"], b["items"], u)
	}
	for _, keyword := range slices.Sorted(maps.Keys(union(a, b))) {
		if !compared[keyword] && !same(a[keyword], b[keyword]) {
			d.add(where, fmt.Sprintf("%s changed from %s to %s", keyword, formatValue(a[keyword]), formatValue(b[keyword])), !remarks[keyword])
		}
	}
}

// compared lists the keywords that have their own comparison. remarks lists the
// annotations, which do not restrict values.
var (
	compared = map[string]bool{"$ref": true, "type": true, "enum": true, "const": true, "properties": true, "required": true, "items": true, "additionalProperties": true}
	remarks  = map[string]bool{"title": true, "description": true, "default": true, "examples": true, "deprecated": true, "$comment": true, "readOnly": true, "writeOnly": true}
)

func union(a, b map[string]json.RawMessage) map[string]json.RawMessage {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	maps.Copy(all, b)
	return all
}

// compareAllowed compares lists of allowed values; nil allows everything.
func (d *differ) compareAllowed(where, what string, was, is []string, u use) {
	if was == nil && is == nil {
		return
	}
	if is != nil {
		if gone := without(was, is); was == nil {
			d.add(where, fmt.Sprintf("allowed any %s, now only %s", what, strings.Join(is, ", ")), u.takes)
		} else if len(gone) > 0 {
			d.add(where, fmt.Sprintf("no longer allows the %s %s", what, strings.Join(gone, ", ")), u.takes)
		}
	}
	if was != nil {
		if more := without(is, was); is == nil {
			d.add(where, fmt.Sprintf("now allows any %s", what), u.gives)
		} else if len(more) > 0 {
			d.add(where, fmt.Sprintf("now also allows the %s %s", what, strings.Join(more, ", ")), u.gives)
		}
	}
}

// without returns the types in a that are not in b. The type integer counts as
// included if b has the type number.
func without(a, b []string) []string {
	var out []string
	for _, s := range a {
		if !slices.Contains(b, s) && !(s == "integer" && slices.Contains(b, "number")) {
			out = append(out, s)
		}
	}
	return out
}

func typesOf(s map[string]json.RawMessage) []string {
	var one string
	if json.Unmarshal(s["type"], &one) == nil && one != "" {
		return []string{one}
	}
	var many []string
	if json.Unmarshal(s["type"], &many) == nil && len(many) > 0 {
		return many
	}
	return nil
}

func valuesOf(s map[string]json.RawMessage) []string {
	var values []json.RawMessage
	if json.Unmarshal(s["enum"], &values) != nil || values == nil {
		if s["const"] == nil {
			return nil
		}
		values = []json.RawMessage{s["const"]}
	}
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = formatValue(v)
	}
	return out
}

// properties compares the members of objects.
func (d *differ) properties(where string, a, b map[string]json.RawMessage, u use) {
	var was, is map[string]json.RawMessage
	_ = json.Unmarshal(a["properties"], &was) // an invalid value counts as missing
	_ = json.Unmarshal(b["properties"], &is)
	for _, name := range slices.Sorted(maps.Keys(was)) {
		at := where + "." + name
		if is[name] == nil {
			d.add(at, "removed the field", true)
			continue
		}
		d.schema(at, was[name], is[name], u)
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if was[name] == nil {
			d.add(where+"."+name, "added the field", false)
		}
	}
	before, after := requiredOf(a), requiredOf(b)
	for _, name := range after {
		if !slices.Contains(before, name) {
			d.add(where+"."+name, "the field is now required", u.takes)
		}
	}
	for _, name := range before {
		if !slices.Contains(after, name) && is[name] != nil {
			d.add(where+"."+name, "the field is no longer required", u.gives)
		}
	}
	if isClosed(a) != isClosed(b) {
		d.add(where, "other fields are now "+map[bool]string{true: "refused", false: "allowed"}[isClosed(b)], isClosed(b) && u.takes)
	}
}

// isClosed reports whether an object may have only the named members.
func isClosed(s map[string]json.RawMessage) bool {
	return string(bytes.TrimSpace(s["additionalProperties"])) == "false"
}

func requiredOf(s map[string]json.RawMessage) (names []string) {
	_ = json.Unmarshal(s["required"], &names) // an invalid value counts as missing
	slices.Sort(names)
	return slices.Compact(names)
}

func same(a, b json.RawMessage) bool { return formatValue(a) == formatValue(b) }

// formatValue returns a value as JSON in canonical form.
func formatValue(v json.RawMessage) string {
	if v == nil {
		return "absent"
	}
	dec := json.NewDecoder(bytes.NewReader(v))
	dec.UseNumber()
	var value any
	if dec.Decode(&value) != nil {
		return string(v)
	}
	text, err := json.Marshal(value)
	if err != nil || len(text) > 200 {
		return fmt.Sprintf("a value of %d bytes", len(v))
	}
	return string(text)
}
