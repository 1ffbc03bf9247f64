package modules

import (
	"bytes"
	"testing"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/jsonvalue"
)

// TestManifestKeepsDigits checks that the integers of a manifest that a node
// sends arrive with all their digits.
func TestManifestKeepsDigits(t *testing.T) {
	const largest = "9223372036854775807"
	told, ok := jsonvalue.ParseAnswer([]byte(`{"abi":1,"name":"m","version":"1","entityTypes":[{"name":"t","kind":"event-sourced","encoding":"json","commands":[{"name":"c","schema":{"type":"integer","maximum":` + largest + `}}]}]}`))
	if !ok {
		t.Fatal("the manifest cannot be read")
	}
	m, err := OfAnswer(&modulev1.GetModuleResponse{Manifest: told.GetStructValue()})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.EntityTypes[0].Commands[0].Schema; !bytes.Contains(got, []byte(`"maximum":`+largest)) {
		t.Errorf("the schema is %s", got)
	}
}
