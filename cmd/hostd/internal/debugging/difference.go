package debugging

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// maxChanges bounds the changes of a state that are shown.
const maxChanges = 100

// change is what is different in a state: at a JSON pointer, absent where it
// was not there or is no more.
type change struct {
	Path string          `json:"path"`
	Was  json.RawMessage `json:"was,omitempty"`
	Is   json.RawMessage `json:"is,omitempty"`
}

func (c change) text() string {
	show := func(v json.RawMessage) string {
		if v == nil {
			return "nothing"
		}
		return cli.NewPayload(v).Text()
	}
	return fmt.Sprintf("%s: %s -> %s", cli.Clean(c.Path), show(c.Was), show(c.Is))
}

// changes are those between two states that are JSON, at most maxChanges; none
// where one of them is not.
func changes(was, is []byte) []change {
	before, ok := parse(was)
	after, other := parse(is)
	if !ok || !other {
		return nil
	}
	var out []change
	compare("", before, after, &out)
	return out
}

func parse(text []byte) (v any, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return v, dec.Decode(&v) == nil
}

// compare adds what is different below a path.
func compare(path string, was, is any, out *[]change) {
	if len(*out) >= maxChanges {
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
	default:
		if was == is {
			return
		}
	}
	*out = append(*out, change{path, raw(was), raw(is)})
}

// differ compares two values of which one may not be there.
func differ(path string, was any, in bool, is any, now bool, out *[]change) {
	switch {
	case in && now:
		compare(path, was, is, out)
	case len(*out) >= maxChanges:
	case in:
		*out = append(*out, change{Path: path, Was: raw(was)})
	default:
		*out = append(*out, change{Path: path, Is: raw(is)})
	}
}

func raw(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		return nil // it came from JSON text
	}
	return text
}
