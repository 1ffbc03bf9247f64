package codec

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestCanonicalJSON(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`null`, `null`},
		{` [ 1 , 2.50 , -0 , -0.0 , 1e2 , 1E-7 , 1e21, 123456789012345680000 ] `, `[1,2.5,0,0,100,1e-7,1e+21,123456789012345680000]`},
		{`9007199254740992`, `9007199254740992`},
		{`-9007199254740992`, `-9007199254740992`},
		{`"9007199254740993"`, `"9007199254740993"`},
		{`0.1`, `0.1`},
		{`1.7976931348623157e308`, `1.7976931348623157e+308`},
		{`5e-324`, `5e-324`},
		{`{"b":1,"a":{"d":[],"c":{}},"":true,"é":false,"aa":null}`, `{"":true,"a":{"c":{},"d":[]},"aa":null,"b":1,"é":false}`},
		{`"\u0000\u001f\"\\\/\b\n\r\t<>&\u2028é\ud83d\ude00"`, "\"\\u0000\\u001f\\\"\\\\/\\u0008\\n\\r\\t<>&\u2028é😀\""},
	} {
		var v structpb.Value
		if err := protojson.Unmarshal([]byte(c.in), &v); err != nil {
			t.Fatalf("%s: %v", c.in, err)
		}
		got, err := AppendCanonical(nil, &v)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.in, got, err, c.want)
		}
	}
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if text, err := AppendCanonical(nil, structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewNumberValue(f)}})); err == nil {
			t.Errorf("%v became %s", f, text)
		}
	}
}

func TestParseJSON(t *testing.T) {
	for _, c := range []struct {
		in   string
		want any
	}{
		{`9007199254740991`, 9007199254740991.0},
		{`9007199254740992`, 9007199254740992.0},
		{`9007199254740993`, "9007199254740993"},
		{`-9007199254740993`, "-9007199254740993"},
		{`18446744073709551615`, "18446744073709551615"},
		{`1e400`, "1e400"},
		{`1.5`, 1.5},
		{`{"a":[1,"x",null,true]}`, map[string]any{"a": []any{1.0, "x", nil, true}}},
	} {
		v, ok := Parse([]byte(c.in))
		if !ok || !reflect.DeepEqual(v.AsInterface(), c.want) {
			t.Errorf("%s: got %v %v", c.in, v.AsInterface(), ok)
		}
	}
	for _, bad := range []string{``, ` `, `{`, `{"a":1}x`, `1 2`, `nul`, `'a'`, "\"\xff\"", "\xef\xbb\xbf1"} {
		if v, ok := Parse([]byte(bad)); ok {
			t.Errorf("%q became %v", bad, v)
		}
	}
}

// FuzzCanonicalJSON: canonical text is JSON with the same meaning, and it is a
// fixed point: reading it and writing it again gives the same bytes.
func FuzzCanonicalJSON(f *testing.F) {
	for _, seed := range []string{`null`, `{"b":[1,2.5e-9,"x\u0000"],"a":{}}`, `"\ud800"`, `[1e21,1e-7,-0]`, `{"a":1,"a":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		v, ok := Parse(in)
		if !ok {
			if Valid(in) {
				t.Fatalf("%q is JSON and was refused", in)
			}
			return
		}
		text, err := AppendCanonical(nil, v)
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		var meaning any
		if err := json.Unmarshal(text, &meaning); err != nil {
			t.Fatalf("%q became %q: %v", in, text, err)
		}
		if want := v.AsInterface(); !reflect.DeepEqual(meaning, want) {
			t.Fatalf("%q became %q", in, text)
		}
		again, ok := Parse(text)
		if !ok {
			t.Fatalf("%q is refused", text)
		}
		// Numbers above 2^53 that were written with an exponent come back as
		// strings of digits: they are read as integers then.
		twice, err := AppendCanonical(nil, again)
		if err != nil {
			t.Fatal(err)
		}
		third, _ := Parse(twice)
		final, err := AppendCanonical(nil, third)
		if err != nil || string(final) != string(twice) {
			t.Fatalf("%q, %q, %q: %v", text, twice, final, err)
		}
	})
}

func BenchmarkCanonicalJSON(b *testing.B) {
	v, err := structpb.NewValue(map[string]any{"amount": 3, "currency": "EUR", "note": "for the rent"})
	if err != nil {
		b.Fatal(err)
	}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		if buf, err = AppendCanonical(buf[:0], v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseJSON(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := Parse([]byte(`{"total":12345}`)); !ok {
			b.Fatal()
		}
	}
}
