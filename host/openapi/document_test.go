package openapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi/manifest"
)

// typesOf returns the types of a manifest.
func typesOf(t *testing.T, text, digest string) (out []Type) {
	t.Helper()
	m, err := manifest.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.CheckSchemas(); err != nil {
		t.Fatal(err)
	}
	for i := range m.EntityTypes {
		out = append(out, Type{EntityType: &m.EntityTypes[i], Module: m, Digest: digest})
	}
	return out
}

// module is a manifest with one type, a, that has these commands and $defs.
func module(commands, defs string) string {
	return `{"abi":1,"name":"m","entityTypes":[{"name":"a","kind":"event-sourced","encoding":"json","commands":[` + commands + `]}],"$defs":{` + defs + `}}`
}

// TestIDsOfOperationsAreUnique: operation ids are unique even if a command
// has the name of the event stream.
func TestIDsOfOperationsAreUnique(t *testing.T) {
	text, err := Document(typesOf(t, module(`{"name":"events"},{"name":"q.x"},{"name":"x"}`, ""), "d"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for path, item := range doc.Paths {
		for method, text := range item {
			var operation struct{ OperationID string }
			if method == "parameters" {
				continue
			}
			if err := json.Unmarshal(text, &operation); err != nil || operation.OperationID == "" {
				t.Errorf("%s %s has no id: %v", method, path, err)
			}
			if ids[operation.OperationID] != "" {
				t.Errorf("%s and %s %s have the id %s", ids[operation.OperationID], method, path, operation.OperationID)
			}
			ids[operation.OperationID] = method + " " + path
		}
	}
	if len(ids) != 5 {
		t.Errorf("operations %v", ids)
	}
}

// TestSchemasKeepDigitsAndLoseForeignReferences: numbers are copied exactly, and
// a $ref in a member that is only a description does not lead out of the document.
func TestSchemasKeepDigitsAndLoseForeignReferences(t *testing.T) {
	text, err := Document(typesOf(t, module(
		`{"name":"c","schema":{"properties":{"n":{"maximum":9223372036854775806},"m":{"$ref":"#/$defs/é"},"o":{"$ref":"#/$defs/è"}},"x-see":{"$ref":"http://127.0.0.1:1/x"}}}`,
		`"é":{"type":"string"},"è":{"type":"number"}`), "d"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"maximum":9223372036854775806`, `"m":{"$ref":"#/components/schemas/_"}`, `"o":{"$ref":"#/components/schemas/_2"}`, `"x-see":{}`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

// TestDocumentHasALimit: a document is rejected for its size, also if its
// references alone exceed the limit.
func TestDocumentHasALimit(t *testing.T) {
	types := typesOf(t, module(`{"name":"c"}`, ""), "d")
	text, err := Document(types, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Document(types, nil, len(text)); err != nil {
		t.Errorf("a document of the limit: %v", err)
	}
	if _, err := Document(types, nil, len(text)-1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a document one byte above the limit: %v", err)
	}
	var refs []string
	for i := range 200 {
		refs = append(refs, fmt.Sprintf(`"m%d":{"$ref":"#/$defs/x"}`, i))
	}
	name := strings.Repeat("c", 64)
	types = typesOf(t, module(`{"name":"`+name+`","schema":{"$defs":{"x":{}},"properties":{`+strings.Join(refs, ",")+`}}}`, ""), "d")
	if _, err := Document(types, nil, 16<<10); !errors.Is(err, ErrTooLarge) {
		t.Errorf("long references: %v", err)
	}
	if _, err := Document(types, nil, 64<<10); err != nil {
		t.Errorf("a larger limit: %v", err)
	}
}
