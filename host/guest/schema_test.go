package guest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi/manifest"
)

func schemaManifest(t *testing.T, members, more string) *manifest.Manifest {
	t.Helper()
	m, err := manifest.Parse([]byte(`{"abi":1,"name":"m","entityTypes":[{"name":"first","kind":"event-sourced","encoding":"bytes"},{"name":"t","kind":"event-sourced","encoding":"json"` + members + `}]` + more + `}`))
	if err != nil {
		t.Fatalf("%s: %v", members, err)
	}
	return m
}

func TestInvalidSchemaIsRejectedWithPath(t *testing.T) {
	long := func(n int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(`{"name":"c%d","schema":{"enum":[%s0]}}`, i, strings.Repeat("1,", 1000)))
		}
		return strings.Join(out, ",")
	}
	for _, c := range []struct{ members, more, want string }{
		{``, ``, ``}, {``, `,"$defs":{"a":{"type":"string"}}`, ``},
		{`,"commands":[{"name":"a"},{"name":"b"},{"name":"c","schema":{"type":"object","properties":{"n":{"type":"integer"}}},"reply":true}],"state":{"$ref":"#/$defs/a"},"stateVersion":2`, `,"$defs":{"a":{"type":"string"}}`, ``},
		{`,"commands":[{"name":"a"},{"name":"b"},{"name":"c","schema":{"properties":{"n":{"type":"int"}}}}]`, ``, `entityTypes[1].commands[2].schema.properties.n.type: is not array`},
		{`,"queries":[{"name":"a","reply":{"description":7}}]`, ``, `entityTypes[1].queries[0].reply.description: `},
		{`,"events":[{"type":"a","schema":{"$ref":"http://a/b"}}]`, ``, `entityTypes[1].events[0].schema.$ref: "http://a/b" points outside the module`},
		{`,"state":7`, ``, `entityTypes[1].state: is neither an object nor true or false`},
		{`,"commands":[{"name":"a","schema":null}]`, ``, `entityTypes[1].commands[0].schema: is neither an object`},
		{`,"commands":[{"name":"a","schema":{"uniqueItems":true}}]`, ``, `entityTypes[1].commands[0].schema.uniqueItems: is a keyword that nodes do not check`},
		{`,"validate":false,"commands":[{"name":"a","schema":{"uniqueItems":true}}]`, ``, ``},
		{`,"commands":[{"name":"a","reply":{"unevaluatedProperties":false}}]`, ``, ``},
		{``, `,"$defs":{"a":{"properties":{"x y":{"required":7}}}}`, `$defs.a.properties["x y"].required: is not a list of names`},
		{`,"commands":[{"name":"a","schema":{"$ref":"#/$defs/a"}}]`, `,"$defs":{"a":{"uniqueItems":true}}`, `$defs.a.uniqueItems: is a keyword that nodes do not check`},
		{`,"commands":[` + long(33) + `]`, ``, `weigh more than 32768`},
	} {
		err := CheckSchemas(schemaManifest(t, c.members, c.more))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%.300s: got %v, want %q", c.members, err, c.want)
		}
		if err != nil && !errors.Is(err, manifest.ErrInvalid) {
			t.Errorf("%T", err)
		}
	}
	m, err := manifest.Parse([]byte(`{"abi":1,"name":"m","entityTypes":[{"name":"t","kind":"event-sourced","encoding":"bytes","commands":[{"name":"a","schema":true}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckSchemas(m); err == nil || !strings.Contains(err.Error(), `entityTypes[0].commands[0].schema: is only for types whose encoding is "json"`) {
		t.Errorf("a type of bytes: %v", err)
	}
}
