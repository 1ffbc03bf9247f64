package replay

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestDiff(t *testing.T) {
	for _, tt := range []struct{ was, is, want string }{
		{`{"a":1,"b":[1,2]}`, ` {"b":[1,2],"a":1.0} `, ``},
		{`{"total":1}`, `{"total":2}`, `replace /total 1 -> 2`},
		{`{"a":1,"c":3}`, `{"b":2,"c":3}`, `remove /a 1 -> null; add /b null -> 2`},
		{`{"a/b":{"~":1}}`, `{"a/b":{"~":2}}`, `replace /a~1b/~0 1 -> 2`},
		{`{"":1}`, `{"":null}`, `replace / 1 -> null`},
		{`[1,2,3,4]`, `[1,4]`, `remove /2 3 -> null; remove /1 2 -> null`},
		{`[1,4]`, `[1,2,3,4]`, `add /1 null -> 2; add /2 null -> 3`},
		{`[{"n":1},{"n":2}]`, `[{"n":1},{"n":3},{"n":4}]`, `replace /1/n 2 -> 3; add /2 null -> {"n":4}`},
		{`[]`, `{}`, `replace  [] -> {}`},
		{`"1"`, `1`, `replace  "1" -> 1`},
		{`9007199254740993`, `9007199254740992`, `replace  9007199254740993 -> 9007199254740992`},
		{`[0,1e2]`, `[-0,100]`, ``},
	} {
		patch, whole, ok := jsonPatch([]byte(tt.was), []byte(tt.is), 100)
		var said []string
		for _, o := range patch {
			was, _ := json.Marshal(o.Was)
			is, _ := json.Marshal(o.Is)
			said = append(said, fmt.Sprintf("%s %s %s -> %s", o.Op, o.Path, was, is))
		}
		if got := strings.Join(said, "; "); got != tt.want || !whole || !ok {
			t.Errorf("%s to %s: %s, %v, %v, want %s", tt.was, tt.is, got, whole, ok, tt.want)
		}
	}
	for _, bad := range []string{``, `{`, `1 2`, "\"\xff\""} {
		if _, _, ok := jsonPatch([]byte(bad), []byte(`1`), 100); ok {
			t.Errorf("%q is JSON", bad)
		}
		if _, _, ok := jsonPatch([]byte(`1`), []byte(bad), 100); ok {
			t.Errorf("%q is JSON", bad)
		}
	}
}

func TestDiffIsBounded(t *testing.T) {
	was, is := "[0,0,0,0]", "[1,1,1,1]"
	if patch, whole, _ := jsonPatch([]byte(was), []byte(is), 4); len(patch) != 4 || !whole {
		t.Errorf("as many as there may be: %d, %v", len(patch), whole)
	}
	if patch, whole, _ := jsonPatch([]byte(was), []byte(is), 3); len(patch) != 3 || whole {
		t.Errorf("more than there may be: %d, %v", len(patch), whole)
	}
}

// apply applies one operation as RFC 6902 specifies.
func apply(v any, path []string, o PatchOperation) any {
	if len(path) == 0 {
		return o.Is
	}
	switch c := v.(type) {
	case map[string]any:
		switch {
		case len(path) > 1:
			c[path[0]] = apply(c[path[0]], path[1:], o)
		case o.Op == PatchRemove:
			delete(c, path[0])
		default:
			c[path[0]] = o.Is
		}
		return c
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil {
			panic(err)
		}
		switch {
		case len(path) > 1:
			c[i] = apply(c[i], path[1:], o)
		case o.Op == PatchRemove:
			return slices.Delete(c, i, i+1)
		case o.Op == PatchAdd:
			return slices.Insert(c, i, o.Is)
		default:
			c[i] = o.Is
		}
		return c
	}
	panic(fmt.Sprintf("no %v in %v", path, v))
}

// value returns a random value. Values of the same random source are similar.
func value(r *rand.Rand, depth int) any {
	switch n := r.IntN(6); {
	case n < 2 && depth > 0:
		list := []any{}
		for range r.IntN(4) {
			list = append(list, value(r, depth-1))
		}
		return list
	case n < 4 && depth > 0:
		object := map[string]any{}
		for range r.IntN(4) {
			object[[]string{"", "a", "b/c", "~d", "e~1"}[r.IntN(5)]] = value(r, depth-1)
		}
		return object
	case n == 4:
		return []any{nil, true, "x"}[r.IntN(3)]
	}
	return json.Number(strconv.Itoa(r.IntN(3)))
}

// TestPatchProducesNewValue checks that applying the patch to the old value gives
// the new one.
func TestPatchProducesNewValue(t *testing.T) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 0))
		was, _ := json.Marshal(value(r, 4))
		is, _ := json.Marshal(value(r, 4))
		patch, whole, ok := jsonPatch(was, is, 1<<20)
		got, _ := parse(was)
		want, _ := parse(is)
		for _, o := range patch {
			var path []string
			if o.Path != "" {
				for _, name := range strings.Split(o.Path, "/")[1:] {
					path = append(path, strings.NewReplacer("~1", "/", "~0", "~").Replace(name))
				}
			}
			got = apply(got, path, o)
		}
		if !whole || !ok || !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %s to %s by %v is %v", seed, was, is, patch, got)
		}
	}
}
