package jsondiff

import (
	"fmt"
	"strings"
	"testing"
)

func TestChanges(t *testing.T) {
	for _, c := range []struct{ was, is, want string }{
		{`{"a":1}`, `{"a":1}`, ``},
		{`{"a":1}`, `{"a":2}`, `/a: 1 -> 2`},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, `/a: 9007199254740993 -> 9007199254740992`},
		{`{"a":1}`, `{"b":1}`, `/a: 1 -> nothing; /b: nothing -> 1`},
		{`{"a":null}`, `{}`, `/a: null -> nothing`},
		{`{"l":[1,{"x":2}]}`, `{"l":[1,{"x":3},4]}`, `/l/1/x: 2 -> 3; /l/2: nothing -> 4`},
		{`{"l":[1,2]}`, `{"l":[1]}`, `/l/1: 2 -> nothing`},
		{`{"a/b~":1}`, `{"a/b~":{}}`, `/a~1b~0: 1 -> {}`},
		{`{"a":1.0,"b":2,"c":[]}`, `{"a":1,"b":2e0,"c":""}`, `/c: [] -> ""`},
		{`""`, `[]`, `: "" -> []`},
		{`[1]`, `{"a":1}`, `: [1] -> {"a":1}`},
		{`bytes`, `{}`, ``},
	} {
		var got []string
		changes, _ := Between([]byte(c.was), []byte(c.is))
		for _, d := range changes {
			got = append(got, d.Text())
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s and %s: %s, want %s", c.was, c.is, text, c.want)
		}
	}
}

func TestChangesAreBounded(t *testing.T) {
	var was, is []string
	for i := range 3 * Most {
		was, is = append(was, fmt.Sprintf("%q:1", fmt.Sprint(i))), append(is, fmt.Sprintf("%q:2", fmt.Sprint(-i-1)))
	}
	changes, ok := Between([]byte("{"+strings.Join(was, ",")+"}"), []byte("{"+strings.Join(is, ",")+"}"))
	if n := len(changes); n != Most || !ok {
		t.Errorf("%d are shown", n)
	}
}
