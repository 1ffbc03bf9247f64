// Package jsondiff describes the differences between two JSON values for
// people. It is pure: it does no I/O and starts no goroutine.
package jsondiff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// Most limits the reported differences.
const Most = 100

// A Change is a difference at a JSON pointer. Was or Is is absent if the member
// did not exist before or does not exist now.
type Change struct {
	Path string          `json:"path"`
	Was  json.RawMessage `json:"was,omitempty"`
	Is   json.RawMessage `json:"is,omitempty"`
}

// Text returns the change as one line.
func (c Change) Text() string {
	return fmt.Sprintf("%s: %s -> %s", cli.Clean(c.Path), c.Before(), c.After())
}

// At returns the place of the change; a dot means the whole value.
func (c Change) At() string {
	if c.Path == "" {
		return "."
	}
	return cli.Clean(c.Path)
}

// Before returns the old value.
func (c Change) Before() string { return show(c.Was) }

// After returns the new value.
func (c Change) After() string { return show(c.Is) }

func show(v json.RawMessage) string {
	if v == nil {
		return "nothing"
	}
	return cli.NewPayload(v).Text()
}

// Between returns the differences between two texts, at most Most; false if one
// of them is not JSON. Different notations of a number are equal, except that
// integers are compared by all their digits.
func Between(was, is []byte) ([]Change, bool) {
	before, ok := parse(was)
	after, other := parse(is)
	if !ok || !other {
		return nil, false
	}
	var out []Change
	compare("", before, after, &out)
	return out, true
}

func parse(text []byte) (v any, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return v, json.Valid(text) && dec.Decode(&v) == nil
}

// compare adds the differences below a path.
func compare(path string, was, is any, out *[]Change) {
	if len(*out) >= Most {
		return
	}
	switch a := was.(type) {
	case map[string]any:
		if b, ok := is.(map[string]any); ok {
			names := slices.Collect(maps.Keys(a))
			for name := range b {
				if _, both := a[name]; !both {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			for _, name := range names {
				x, in := a[name]
				y, now := b[name]
				differ(path+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), x, in, y, now, out)
			}
			return
		}
	case []any:
		if b, ok := is.([]any); ok {
			for i := range max(len(a), len(b)) {
				var x, y any
				if i < len(a) {
					x = a[i]
				}
				if i < len(b) {
					y = b[i]
				}
				differ(fmt.Sprintf("%s/%d", path, i), x, i < len(a), y, i < len(b), out)
			}
			return
		}
	case json.Number:
		if b, ok := is.(json.Number); ok && sameNumber(string(a), string(b)) {
			return
		}
	default:
		switch is.(type) {
		case map[string]any, []any: // are no value that can be compared by ==
		default:
			if was == is {
				return
			}
		}
	}
	*out = append(*out, Change{path, raw(was), raw(is)})
}

// sameNumber reports whether two numbers are equal.
func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	if !strings.ContainsAny(a, ".eE") && !strings.ContainsAny(b, ".eE") {
		return false
	}
	x, err := strconv.ParseFloat(a, 64)
	y, other := strconv.ParseFloat(b, 64)
	return err == nil && other == nil && x == y
}

// differ compares two values, either of which may be absent.
func differ(path string, was any, in bool, is any, now bool, out *[]Change) {
	switch {
	case in && now:
		compare(path, was, is, out)
	case len(*out) >= Most:
	case in:
		*out = append(*out, Change{Path: path, Was: raw(was)})
	default:
		*out = append(*out, Change{Path: path, Is: raw(is)})
	}
}

func raw(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		return nil // cannot happen, because the value came from JSON text
	}
	return text
}
