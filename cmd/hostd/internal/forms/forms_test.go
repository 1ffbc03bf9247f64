package forms

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":["object","null"],"properties":{"amount":{"type":["integer","string"],"format":"int64"}},"additionalProperties":false}`: `{amount?: int64} | null`,
		`{"type":"object","required":["b"],"properties":{"b":{"type":"array","items":{"type":["string","null"]}},"a":{"enum":["x",1]}}}`: `{a?: "x" | 1, b: (string | null)[]}`,
		`{"anyOf":[{"type":"null"},{"$ref":"#/$defs/tree"}]}`:                                                                            `null | tree`,
		`{"type":"object","additionalProperties":{"type":"number"}}`:                                                                     `{[name]: number}`,
		`true`: `anything`, `{}`: `anything`, `false`: `nothing`, `{"const":"a"}`: `"a"`, `{"type":"array"}`: `anything[]`,
		strings.Repeat(`{"type":"array","items":`, 9) + `true` + strings.Repeat(`}`, 9): `...[][][][][][]`,
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		schema, err := structpb.NewValue(v)
		if err != nil {
			t.Fatal(err)
		}
		if got := Text(schema); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
	if Text(nil) != "" {
		t.Error("none is something")
	}
}
