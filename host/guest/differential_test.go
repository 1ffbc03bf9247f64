package guest

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hostd/hostd/abi/schema"
)

var seed = flag.Uint64("seed", 0, "of the schemas that are drawn; 0 draws one")

// generator generates random schemas and related values.
type generator struct{ *rand.Rand }

var memberNames = []string{"a", "b", "c", "dé", "e f"}

func (g generator) name() string { return memberNames[g.IntN(len(memberNames))] }

func (g generator) number() any {
	return []any{0, 1, -1, 2, 7, 10, 2.5, -0.5, 100, json.Number("1.0"), json.Number("1e2"), json.Number("0.01"), 1 << 40}[g.IntN(13)]
}

func (g generator) text() string {
	return []string{"", "a", "ab", "abc", "é", "x-1", "12", "\u0000\"\\", "😀"}[g.IntN(9)]
}

func (g generator) value(depth int) any {
	most := 7
	if depth <= 0 {
		most = 4
	}
	switch g.IntN(most) {
	case 0:
		return nil
	case 1:
		return g.IntN(2) == 0
	case 2:
		return g.number()
	case 3:
		return g.text()
	case 4:
		list := []any{}
		for range g.IntN(4) {
			list = append(list, g.value(depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range g.IntN(4) {
		object[g.name()] = g.value(depth - 1)
	}
	return object
}

func (g generator) schema(depth int) any {
	if depth <= 0 || g.IntN(12) == 0 {
		return g.IntN(5) > 0
	}
	s := map[string]any{}
	one := func(name string) { s[name] = g.schema(depth - 1) }
	list := func(name string) {
		var out []any
		for range 1 + g.IntN(3) {
			out = append(out, g.schema(depth-1))
		}
		s[name] = out
	}
	named := func(name string, key func() string) {
		out := map[string]any{}
		for range 1 + g.IntN(3) {
			out[key()] = g.schema(depth - 1)
		}
		s[name] = out
	}
	names := func() []any {
		out := []any{}
		for _, n := range memberNames {
			if g.IntN(3) == 0 {
				out = append(out, n)
			}
		}
		return out
	}
	for range 1 + g.IntN(4) {
		switch g.IntN(26) {
		case 0, 1, 2, 3:
			kinds := []string{"null", "boolean", "object", "array", "number", "string", "integer"}
			s["type"] = kinds[g.IntN(len(kinds))]
			if g.IntN(3) == 0 {
				at := g.IntN(len(kinds) - 1)
				s["type"] = []any{kinds[at], kinds[at+1]}
			}
		case 4:
			if s["const"] == nil {
				s["enum"] = []any{g.text() + "0", g.IntN(2) == 0, nil, g.number()}
			}
		case 5:
			if s["enum"] == nil {
				s["const"] = g.number()
			}
		case 6:
			s["minimum"] = g.number()
		case 7:
			s["exclusiveMaximum"] = g.number()
		case 8:
			s["multipleOf"] = []any{1, 2, 0.5, json.Number("0.01")}[g.IntN(4)]
		case 9:
			s["minLength"], s["maxLength"] = g.IntN(3), 1+g.IntN(3)
		case 10:
			s["pattern"] = []string{"^a", "b$", "^[a-z-]*[0-9]?$", "é"}[g.IntN(4)]
		case 11:
			s["minItems"], s["maxItems"] = g.IntN(2), 1+g.IntN(3)
		case 12:
			one("items")
		case 13:
			list("prefixItems")
		case 14:
			one("contains")
			s["minContains"] = g.IntN(3)
		case 15, 16:
			named("properties", g.name)
		case 17:
			s["required"] = names()
		case 18:
			one("additionalProperties")
		case 19:
			named("patternProperties", func() string { return []string{"^a", "b", "."}[g.IntN(3)] })
		case 20:
			s["propertyNames"] = map[string]any{"maxLength": 1}
			s["minProperties"], s["maxProperties"] = g.IntN(2), 1+g.IntN(3)
		case 21:
			s["dependentRequired"] = map[string]any{g.name(): names()}
			named("dependentSchemas", g.name)
		case 22:
			list([]string{"allOf", "anyOf", "oneOf"}[g.IntN(3)])
		case 23:
			one("not")
		case 24:
			one("if")
			one("then")
			one("else")
		case 25:
			s["items"] = map[string]any{"$ref": "#"}
		}
	}
	return s
}

// compare validates the same text with the walker and with the library, and
// fails if the results differ.
func compare(t *testing.T, schemaText, text []byte, mine *schema.Schema, theirs *jsonschema.Schema) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	want := theirs.Validate(v)
	if got := mine.Check(text); (got == nil) != (want == nil) {
		t.Fatalf("seed %d\nschema %s\ntext   %s\nwalker  %v\nlibrary %v", *seed, schemaText, text, got, want)
	}
}

// both compiles a schema with the walker and with the library. It returns nil,
// nil if the walker rejects the schema.
func both(t *testing.T, text []byte) (*schema.Schema, *jsonschema.Schema) {
	t.Helper()
	mine, err := schema.Compile(text, nil)
	if err != nil {
		return nil, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := compiler()
	if err := c.AddResource("hostd:schema", doc); err != nil {
		t.Fatal(err)
	}
	theirs, err := c.Compile("hostd:schema")
	if err != nil {
		t.Fatalf("%s: the library refuses it: %v", text, err)
	}
	return mine, theirs
}

// TestWalkerMatchesLibrary checks that the walker and the library agree for
// random schemas and random values.
func TestWalkerMatchesLibrary(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d", *seed)
	g := generator{rand.New(rand.NewPCG(*seed, 1))}
	fits, not := 0, 0
	for range 3000 {
		schemaText, err := json.Marshal(g.schema(3))
		if err != nil {
			t.Fatal(err)
		}
		mine, theirs := both(t, schemaText)
		if mine == nil {
			t.Fatalf("seed %d: %s is refused", *seed, schemaText)
		}
		for range 10 {
			text, err := json.Marshal(g.value(3))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, schemaText, text, mine, theirs)
			if mine.Check(text) == nil {
				fits++
			} else {
				not++
			}
		}
	}
	if fits < 1000 || not < 1000 {
		t.Errorf("%d texts fit and %d do not: that says little", fits, not)
	}
}

// FuzzWalkerMatchesLibrary checks that the walker and the library agree for
// arbitrary schemas.
func FuzzWalkerMatchesLibrary(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`, `{"a":1}`)
	f.Add(`{"items":{"anyOf":[{"$ref":"#"},{"type":"string"}]}}`, `[["a"],1]`)
	for i := range uint64(20) {
		g := generator{rand.New(rand.NewPCG(i, 2))}
		f.Add(string(must(json.Marshal(g.schema(3)))), string(must(json.Marshal(g.value(3)))))
	}
	meta := must(compiler().Compile(dialect))
	f.Fuzz(func(t *testing.T, schemaText, text string) {
		if len(schemaText) > 2000 || len(text) > 2000 || strings.ContainsAny(text, "eE") || !alike(schemaText) || !alike(text) {
			return
		}
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schemaText))
		if err != nil || meta.Validate(doc) != nil {
			return // the schema is invalid, which the walker does not check completely
		}
		if mine, theirs := both(t, []byte(schemaText)); mine != nil {
			compare(t, []byte(schemaText), []byte(text), mine, theirs)
		}
	})
}

// alike reports whether the library and the walker parse a text equally. They
// do if the text has no duplicate members, no numbers that only one of the
// two parsers represents exactly, and no escapes that they decode
// differently.
func alike(text string) bool {
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if !json.Valid([]byte(text)) || strings.Contains(text, `\`) || strings.Contains(text, "format") || !utf8.ValidString(text) || d.Decode(&v) != nil {
		return false
	}
	digits := 0
	for _, c := range text {
		if c >= '0' && c <= '9' {
			digits++
		} else {
			digits = 0
		}
		if digits > 15 {
			return false
		}
	}
	var compact, again bytes.Buffer
	e := json.NewEncoder(&again)
	e.SetEscapeHTML(false)
	return json.Compact(&compact, []byte(text)) == nil && e.Encode(v) == nil && again.Len()-1 == compact.Len()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
