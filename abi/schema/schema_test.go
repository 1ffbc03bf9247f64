package schema

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func mustCompile(t testing.TB, text string) *Schema {
	t.Helper()
	s, err := Compile([]byte(text), nil)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

func told(violations []Violation) string {
	var out []string
	for _, v := range violations {
		out = append(out, v.String())
	}
	return strings.Join(out, "; ")
}

const order = `{"type":"object","required":["sku"],"additionalProperties":false,"properties":{
	"sku":{"type":"string","minLength":2,"maxLength":4,"pattern":"^[a-z]+$"},"amount":{"type":["integer","string"],"format":"int64"},
	"price":{"type":"number","minimum":0,"exclusiveMaximum":100,"multipleOf":0.01},"state":{"enum":["open","closed",null]},
	"items":{"type":"array","maxItems":2,"items":{"type":"object","required":["id"],"properties":{"id":{"type":"integer","minimum":1}},"additionalProperties":false}},
	"owner":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/owner"}]}}, "$defs":{"owner":{"type":"object","properties":{"name":{"type":"string"},"of":{"$ref":"#/$defs/owner"}},"additionalProperties":false}}}`

func TestViolationsNameTheirField(t *testing.T) {
	s := mustCompile(t, order)
	for _, c := range []struct{ text, want string }{
		{`{"sku":"ab"}`, ``},
		{` { "sku" : "ab" , "amount" : 3, "price":9.99, "state":null,"items":[{"id":1},{"id":2}],"owner":{"name":"x","of":{"name":"y"}}} `, ``},
		{`{"amount":"9223372036854775807","sku":"\u0061b"}`, ``},
		{`{"s\u006bu":"ab"}`, ``},
		{`{"sku":"ab","amout":3}`, `amout: unknown member "amout", did you mean "amount"?`},
		{`{"sku":"ab","colour":3}`, `colour: unknown member "colour", known members are "amount", "items", "owner", "price", "sku", "state"`},
		{`{}`, `sku: is missing`},
		{`{"sku":"ab","sku":"ab"}`, `sku: is duplicated`},
		{`[]`, `is a list, not an object`},
		{`{"sku":"a"}`, `sku: has fewer than 2 characters`},
		{`{"sku":"éééé"}`, `sku: does not match "^[a-z]+$"`},
		{`{"sku":"abcde"}`, `sku: has more than 4 characters`},
		{`{"sku":"ab","amount":3.5}`, `amount: is a number, not a string or an integer`},
		{`{"sku":"ab","amount":3.0}`, ``},
		{`{"sku":"ab","amount":"3.0"}`, `amount: is not a 64-bit integer in digits`},
		{`{"sku":"ab","amount":9223372036854775808}`, `amount: is beyond 64 bits`},
		{`{"sku":"ab","amount":-9223372036854775808}`, ``},
		{`{"sku":"ab","price":-1}`, `price: is less than 0`},
		{`{"sku":"ab","price":100}`, `price: is not less than 100`},
		{`{"sku":"ab","price":0.005}`, `price: is not a multiple of 0.01`},
		{`{"sku":"ab","state":"opn"}`, `state: is not one of "open", "closed", did you mean "open"?`},
		{`{"sku":"ab","state":true}`, `state: is not one of "open", "closed"`},
		{`{"sku":"ab","items":[{"id":1},{"id":0,"x":[{}]}]}`, `items[1].id: is less than 1; items[1].x: unknown member "x", known members are "id"`},
		{`{"sku":"ab","items":[{"id":1},{"id":1},{}]}`, `items[2].id: is missing; items: has more than 2 items`},
		{`{"sku":"ab","owner":{"name":"x","of":{"nam":"y"}}}`, `owner.of.nam: unknown member "nam", did you mean "name"?`},
		{`{"sku":"ab","owner":7}`, `owner: matches none of 2 alternatives`},
		{`{"sku":"ab","we ird":1}`, `["we ird"]: unknown member "we ird", known members are "amount", "items", "owner", "price", "sku", "state"`},
		{``, `is not JSON text`}, {`{"sku":"ab"`, `is not JSON text`}, {`{"sku":"ab"}x`, `is not JSON text`}, {`{"sku":"ab",}`, `is not JSON text`},
		{"{\"sku\":\"\xff\xff\"}", `is not JSON text`},
	} {
		if got := told(s.Check([]byte(c.text))); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

func TestKeywords(t *testing.T) {
	for _, c := range []struct{ schema, fits, not string }{
		{`true`, `7`, ``}, {`false`, ``, `7`},
		{`{"const":1.0}`, `1`, `2`}, {`{"enum":[1,"a",false]}`, `false`, `true`},
		{`{"prefixItems":[{"type":"string"}],"items":false}`, `["a"]`, `["a",1]`},
		{`{"contains":{"type":"string"},"minContains":2,"maxContains":2}`, `[1,"a","b"]`, `["a","b","c"]`},
		{`{"patternProperties":{"^x-":{"type":"string"}},"additionalProperties":false}`, `{"x-a":"b"}`, `{"x-a":1}`},
		{`{"propertyNames":{"maxLength":2},"minProperties":1,"maxProperties":2}`, `{"ab":1}`, `{"abc":1}`},
		{`{"dependentRequired":{"a":["b"]},"dependentSchemas":{"c":{"required":["d"]}}}`, `{"b":1}`, `{"a":1}`},
		{`{"dependentSchemas":{"c":{"required":["d"]}}}`, `{"c":1,"d":1}`, `{"c":1}`},
		{`{"oneOf":[{"type":"integer"},{"minimum":5}]}`, `3`, `7`},
		{`{"not":{"type":"string"}}`, `3`, `"a"`},
		{`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"maxProperties":0}}`, `{"a":1,"b":2}`, `{"c":1}`},
		{`{"allOf":[{"type":"object"},{"required":["a"]}],"anyOf":[{"required":["b"]},{"required":["c"]}]}`, `{"a":1,"c":1}`, `{"a":1}`},
		{`{"type":"array","items":{"$ref":"#"}}`, `[[],[[]]]`, `[[1]]`},
		{`{"properties":{"a":{"type":"integer"},"b":{"$ref":"#/properties/a"}}}`, `{"b":1}`, `{"b":"x"}`},
		{`{"type":"integer","format":"uint64"}`, `18446744073709551615`, `-1`},
		{`{"type":"integer"}`, `1e2`, `1e-2`}, {`{"minimum":10}`, `1e400`, `-1e400`},
		{`{"uniqueItems":false,"x-own":{"a":1},"title":"t"}`, `1`, ``},
	} {
		s := mustCompile(t, c.schema)
		if v := s.Check([]byte(c.fits)); c.fits != "" && v != nil {
			t.Errorf("%s refuses %s: %v", c.schema, c.fits, v)
		}
		if v := s.Check([]byte(c.not)); c.not != "" && v == nil {
			t.Errorf("%s takes %s", c.schema, c.not)
		}
	}
}

func TestInvalidSchemaIsRejectedWithPath(t *testing.T) {
	many := func(format string, n int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(format, i))
		}
		return strings.Join(out, ",")
	}
	for _, c := range []struct{ schema, want string }{
		{``, `is not JSON text`}, {`7`, `is neither an object nor true or false`},
		{`{"type":"int"}`, `type: is not array`}, {`{"properties":{"a":{"minimum":"1"}}}`, `properties.a.minimum: is not a number`},
		{`{"properties":{"a b":{"items":[]}}}`, `properties["a b"].items: is neither`},
		{`{"required":"a"}`, `required: is not a list of names`}, {`{"required":["a","a"]}`, `required: is not a list of distinct names`},
		{`{"$ref":"https://example.com/x"}`, `$ref: "https://example.com/x" points outside the module`},
		{`{"$ref":"#/$defs/none"}`, `$ref: "#/$defs/none" points to nothing`},
		{`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"allOf":[{"$ref":"#/$defs/a"}]}}}`, `refers to itself`},
		{`{"$ref":"#"}`, `refers to itself`},
		{`{"$defs":{"shared":true}}`, `$defs.shared: is already a name in the module's $defs`},
		{`{"items":{"uniqueItems":true}}`, `items.uniqueItems: is a keyword that nodes do not check`},
		{`{"unevaluatedProperties":false}`, `unevaluatedProperties: is a keyword that nodes do not check`},
		{`{"$id":"x"}`, `$id: is a keyword that module schemas do not support`}, {`{"$schema":"http://json-schema.org/draft-07/schema#"}`, `$schema: is not`},
		{`{"enum":[[1]]}`, `enum[0]: is a list or an object`}, {`{"enum":[` + many("%d", MaxEnum+1) + `]}`, `enum: has 1025 values`},
		{`{"pattern":"("}`, `pattern: is not a regular expression`}, {`{"pattern":"` + strings.Repeat("a", MaxPatternBytes+1) + `"}`, `pattern: has 257 bytes`},
		{`{"pattern":"(a{500}){2}(b{500}){2}(c{500}){2}"}`, `pattern: compiles to more`},
		{`{"anyOf":[` + many(`{"pattern":"a%d"}`, MaxPatterns+1) + `]}`, `is more than 64 patterns`},
		{`{"properties":{` + many(`"a%d":true`, MaxMembers+1) + `}}`, `names 257 members`},
		{`{"anyOf":[` + many(`{"title":"%d"}`, MaxSchemas) + `]}`, `is more than 1024 schemas`},
		{strings.Repeat(`{"not":`, MaxDepth+1) + `true` + strings.Repeat(`}`, MaxDepth+1), `is deeper than 32 schemas`},
		{`{"maxLength":-1}`, `maxLength: is not a count: an integer from 0 to 2147483647`}, {`{"multipleOf":0}`, `multipleOf: is not above 0`},
	} {
		_, err := Compile([]byte(c.schema), map[string]json.RawMessage{"shared": json.RawMessage(`{"type":"string"}`)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.100s\n got %v\nwant %s", c.schema, err, c.want)
		}
	}
}

func TestDefinitionsOfTheModule(t *testing.T) {
	defs := map[string]json.RawMessage{"money": json.RawMessage(`{"type":"object","properties":{"of":{"$ref":"#/$defs/code"}}}`), "code": json.RawMessage(`{"enum":["EUR"]}`), "bad": json.RawMessage(`{"$ref":"#"}`)}
	s, err := Compile([]byte(`{"items":{"$ref":"#/$defs/money"}}`), defs)
	if err != nil || s.Check([]byte(`[{"of":"EUR"}]`)) != nil || told(s.Check([]byte(`[{"of":"EUE"}]`))) != `[0].of: is not one of "EUR", did you mean "EUR"?` {
		t.Errorf("%v, %v", err, s.Check([]byte(`[{"of":"EUE"}]`)))
	}
	if s, err := Inspect([]byte(`{"uniqueItems":true,"enum":[[1]],"unevaluatedProperties":{"type":"string"}}`), nil); err != nil || s.Weight() == 0 {
		t.Errorf("a description: %v", err)
	}
	if _, err := InspectShared("money", defs); err != nil {
		t.Error(err)
	}
	if _, err := InspectShared("bad", defs); err == nil || err.Error() != "$defs.bad.$ref: points outside the module's $defs, which several schemas share" {
		t.Error(err)
	}
	if _, err := Compile([]byte(`{"$ref":"#/$defs/bad"}`), defs); err == nil || !strings.Contains(err.Error(), "$defs.bad.$ref: points outside") {
		t.Errorf("%v", err)
	}
}

// TestEndlessChecksAreInterrupted checks that endless schemas and texts are interrupted.
func TestEndlessChecksAreInterrupted(t *testing.T) {
	doubling := `{"$ref":"#/$defs/d0","$defs":{"d24":{"type":"string"}`
	for i := range 24 {
		doubling += fmt.Sprintf(`,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1)
	}
	s := mustCompile(t, doubling+`}}`)
	if got := told(s.Check([]byte(`"a"`))); got != faultTexts[tooLong] {
		t.Errorf("a schema that doubles: %s", got)
	}
	s = mustCompile(t, `{"pattern":"(a|aa)+`+strings.Repeat("a?", 100)+`$"}`)
	if got := told(s.Check([]byte(`"` + strings.Repeat("a", 1<<20) + `"`))); got != faultTexts[tooLong] {
		t.Errorf("a pattern on a long string: %s", got)
	}
	deep := strings.Repeat("[", MaxValueDepth+1) + strings.Repeat("]", MaxValueDepth+1)
	for _, schema := range []string{`{"items":{"$ref":"#"}}`, `{}`, `{"properties":{}}`} {
		if got := told(mustCompile(t, schema).Check([]byte(deep))); got != faultTexts[tooDeep] {
			t.Errorf("%s, a deep text: %.100s", schema, got)
		}
	}
	if v := mustCompile(t, `{"type":"array","items":{"type":"integer"}}`).Check([]byte("[" + strings.Repeat("1,", 500_000) + "1]")); v != nil {
		t.Errorf("a long list: %v", v)
	}
}

func TestViolationsAreBounded(t *testing.T) {
	s := mustCompile(t, `{"items":{"type":"string"},"additionalProperties":false}`)
	if v := s.Check([]byte("[" + strings.Repeat("1,", 1000) + "1]")); len(v) != MaxViolations {
		t.Errorf("%d violations", len(v))
	}
	if got := told(s.Check([]byte(`{"` + strings.Repeat("é", 1000) + `":1}`))); len(got) > 600 {
		t.Errorf("%d bytes of text", len(got))
	}
}

// TestOpenChecksAllowUnknownMembers checks that unknown members are allowed,
// and known members are checked against their schemas.
func TestOpenChecksAllowUnknownMembers(t *testing.T) {
	s := mustCompile(t, order)
	for text, want := range map[string]string{
		`{"sku":"ab","later":1,"items":[{"id":1,"x":{}}]}`: "", `{"later":1,"sku":"a"}`: "sku: has fewer than 2 characters", `{"later":1}`: "sku: is missing",
	} {
		if got := told(s.CheckOpen([]byte(text))); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"add", "amount", "reset", "total", "withdraw", "withdrawn"}
	for name, want := range map[string]string{
		"amout": "amount", "Amount": "amount", "amuont": "amount", "ad": "add", "withdra": "withdraw", "rset": "reset", "x": "", "": "", "deposit": "", "tatol": "",
		strings.Repeat("a", 100): "", "wihtdrawn": "withdrawn",
	} {
		got, found := Nearest(name, slices.Values(names))
		if got != want || found != (want != "") {
			t.Errorf("%q: %q, %v", name, got, found)
		}
	}
}

// TestFlatObjectsAllocateNothing checks that a check of a flat object allocates
// nothing.
func TestFlatObjectsAllocateNothing(t *testing.T) {
	s := mustCompile(t, order)
	text := []byte(`{"amount":3,"items":[{"id":1}],"owner":null,"price":12.5,"sku":"abc","state":"open"}`)
	if n := testing.AllocsPerRun(100, func() {
		if s.Check(text) != nil {
			t.Fatal("does not fit")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCheckFlat(b *testing.B) {
	s := mustCompile(b, `{"type":["object","null"],"additionalProperties":false,"properties":{"amount":{"type":["integer","string"],"format":"int64"}}}`)
	text := []byte(`{"amount":3}`)
	b.ReportAllocs()
	for b.Loop() {
		if s.Check(text) != nil {
			b.Fatal("does not fit")
		}
	}
}

func BenchmarkCheckOrder(b *testing.B) {
	s := mustCompile(b, order)
	text := []byte(`{"amount":3,"items":[{"id":1}],"owner":null,"price":12.5,"sku":"abc","state":"open"}`)
	b.ReportAllocs()
	for b.Loop() {
		if s.Check(text) != nil {
			b.Fatal("does not fit")
		}
	}
}

// FuzzCheck checks that every check ends, and that a schema that allows
// everything accepts exactly the texts that are JSON.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{order, `{"a":[1,2.5e-9,"x\u0000\ud83d"],"b":{}}`, `[1,]`, `{"a":}`, `"\ud83d\ude00"`, `-`, `01`} {
		f.Add([]byte(text))
	}
	any, strict := mustCompile(f, `{}`), mustCompile(f, order)
	f.Fuzz(func(t *testing.T, text []byte) {
		got := any.Check(text)
		if _, err := read(text); (err == nil) != (got == nil) && !slices.Contains(got, Violation{Text: faultTexts[tooDeep]}) && !slices.Contains(got, Violation{Text: faultTexts[tooLong]}) {
			t.Fatalf("%q: %v, %v", text, err, got)
		}
		for _, v := range strict.Check(text) {
			if v.Text == "does not match the schema" {
				t.Fatalf("%q: a fault that nobody tells", text)
			}
		}
	})
}

// TestSamplesMatchTheirSchema checks that samples match their schema.
func TestSamplesMatchTheirSchema(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, text := range []string{
		order, `{}`, `{"type":["object","null"],"properties":{"amount":{"type":["integer","string"],"format":"int64"}},"additionalProperties":false}`,
		`{"anyOf":[{"type":"null"},{"$ref":"#/$defs/t"}],"$defs":{"t":{"type":"object","required":["l"],"properties":{"l":{"type":"array","items":{"$ref":"#/$defs/t"}}}}}}`,
		`{"type":"array","minItems":2,"maxItems":3,"items":{"type":"number","exclusiveMinimum":5,"maximum":7}}`, `{"enum":["a",1,null,true]}`, `{"type":"string","maxLength":0}`,
	} {
		s, drawn := mustCompile(t, text), map[string]bool{}
		for range 200 {
			if sample, ok := s.Sample(random); ok {
				drawn[string(sample)] = true
			}
		}
		if len(drawn) == 0 || len(drawn) == 1 && text != `{"type":"string","maxLength":0}` {
			t.Errorf("%s: %d samples: %v", text, len(drawn), drawn)
		}
	}
	if text, ok := mustCompile(t, `{"type":"string","pattern":"^x{7}$"}`).Sample(random); ok {
		t.Errorf("%s was drawn of a pattern", text)
	}
}
