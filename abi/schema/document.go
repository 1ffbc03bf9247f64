package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// defsName is the member that holds shared schemas.
const defsName = "$defs"

// sharedDefs is the place of the module's $defs.
var sharedDefs = place{text: defsName, key: "module", shared: true}

// doc is an uncompiled schema, with the module's $defs merged into its own.
type doc struct {
	root any
	defs map[string]any // the module's $defs
}

// document parses a schema. It returns an error if the schema's own $defs and
// the module's have a name in common, because the name would be ambiguous.
func document(text []byte, defs map[string]json.RawMessage) (*doc, error) {
	root, err := read(text)
	if err != nil {
		return nil, err
	}
	d := &doc{root: root, defs: map[string]any{}}
	own, _ := root.(map[string]any)
	mine, _ := own[defsName].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(defs)) {
		if _, both := mine[name]; both {
			return nil, place{}.member(defsName).member(name).fault("is already a name in the module's %s", defsName)
		}
		if d.defs[name], err = read(defs[name]); err != nil {
			return nil, sharedDefs.member(name).fault("is not JSON text")
		}
	}
	return d, nil
}

func read(text []byte) (any, error) {
	if !utf8.Valid(text) || !json.Valid(text) {
		return nil, &Error{Reason: "is not JSON text"}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil, &Error{Reason: "is not JSON text"}
	}
	return v, nil
}

// resolve returns the target of a reference.
func (d *doc) resolve(ref string) (any, place, error) {
	if ref == "#" {
		return d.root, place{}, nil
	}
	rest, local := strings.CutPrefix(ref, "#/")
	if !local {
		return nil, place{}, fmt.Errorf("%s points outside the module: a reference must begin with #/", quoteName(ref))
	}
	var at any = d.root
	var where place
	for i, token := range strings.Split(rest, "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		next, ok := step(at, token)
		if i == 1 && where.text == defsName && !ok {
			next, ok = d.defs[token]
			where = sharedDefs
		}
		if i == 0 && token == defsName && !ok {
			next, ok = map[string]any{}, true
		}
		if !ok {
			return nil, place{}, fmt.Errorf("%s points to nothing", quoteName(ref))
		}
		at, where = next, where.member(token)
	}
	return at, where, nil
}

func step(at any, token string) (any, bool) {
	switch v := at.(type) {
	case map[string]any:
		next, ok := v[token]
		return next, ok
	case []any:
		if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(v) {
			return v[i], true
		}
	}
	return nil, false
}

// place is the place of an item in a schema.
type place struct {
	text   string // the path as errors show it
	key    string // unique for each place
	depth  int    // nesting of schemas
	shared bool   // in the module's $defs
}

func (p place) member(name string) place {
	p.key += strconv.Quote(name)
	p.text = joinPath(p.text, name)
	return p
}

func (p place) element(i int) place {
	p.key += fmt.Sprintf("[%d]", i)
	p.text = fmt.Sprintf("%s[%d]", p.text, i)
	return p
}

// joinPath appends a member's name to a path.
func joinPath(path, name string) string {
	text := memberText(name)
	if path == "" || text[0] == '[' {
		return path + text
	}
	return path + "." + text
}

func (p place) fault(format string, args ...any) error {
	return &Error{p.text, fmt.Sprintf(format, args...), p.shared}
}

// memberText returns a member's name as paths show it.
func memberText(name string) string {
	for _, c := range name {
		if c != '_' && c != '-' && c != '$' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c < 0xa0 {
			return "[" + quoteName(name) + "]"
		}
	}
	if name == "" || len(name) > quotedMost {
		return "[" + quoteName(name) + "]"
	}
	return name
}

// quotedMost limits how many bytes of a name are shown.
const quotedMost = 64

// quoteName returns a name as error texts show it, truncated if it is long.
func quoteName(name string) string {
	if len(name) > quotedMost {
		return strconv.Quote(strings.ToValidUTF8(name[:quotedMost], "")) + "..."
	}
	return strconv.Quote(name)
}
