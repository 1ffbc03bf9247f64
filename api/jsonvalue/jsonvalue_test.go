package jsonvalue

import (
	"math"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestDigitsSurviveTheBinaryForm checks that the corner cases of package
// jsontext have the same text after they are converted to values, encoded and
// decoded.
func TestDigitsSurviveTheBinaryForm(t *testing.T) {
	cases, err := os.ReadFile("../../abi/jsontext/testdata/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(cases)) {
		in, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " => ")
		if !ok {
			continue
		}
		v, err := Parse([]byte(in))
		if (err != nil) != (want == "refused") {
			t.Errorf("%s: %v", in, err)
		}
		if err != nil {
			continue
		}
		encoded, err := proto.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var back structpb.Value
		if err := proto.Unmarshal(encoded, &back); err != nil {
			t.Fatal(err)
		}
		if got, err := Append(nil, &back); err != nil || string(got) != want {
			t.Errorf("%s became %s, %v, want %s", in, got, err, want)
		}
	}
}

func TestIntegersBeyondDoublesAreMarkedStrings(t *testing.T) {
	for in, want := range map[string]any{
		`9007199254740991`: 9007199254740991.0, `9007199254740992`: 9007199254740992.0, `-9007199254740992`: -9007199254740992.0,
		`9007199254740993`: "9007199254740993", `-9007199254740993`: "-9007199254740993", `18446744073709551615`: "18446744073709551615",
		`1e21`: 1e21, `1.5`: 1.5,
	} {
		v, err := Parse([]byte(in))
		if err != nil || v.AsInterface() != want {
			t.Errorf("%s: got %v, %v, want %v", in, v.AsInterface(), err, want)
		}
		_, isText := want.(string)
		if HasDigits(v) != isText || HasDigits(structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})) != isText {
			t.Errorf("%s: marked %v", in, !isText)
		}
	}
	// A mark on anything except the digits of an integer has no meaning.
	for _, text := range []string{"5.0", "1e2", "abc", "", "-", "18446744073709551616", "01", " 1"} {
		v := structpb.NewStringValue(text)
		v.ProtoReflect().SetUnknown(mark)
		if got, err := Append(nil, v); err != nil || got[0] != '"' {
			t.Errorf("%q became %s, %v", text, got, err)
		}
	}
}

func TestValuesWithoutTextAreRefused(t *testing.T) {
	for _, v := range []*structpb.Value{structpb.NewNumberValue(math.NaN()), structpb.NewNumberValue(math.Inf(1)), structpb.NewNumberValue(math.Inf(-1))} {
		if text, err := Append(nil, structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})); err == nil {
			t.Errorf("%v became %s", v, text)
		}
	}
}

// TestAnswersAreReadAsFarAsTheyCanBe checks that the output of a module is
// returned even if it contains JSON that a caller would not be allowed to send,
// because the command is already durable.
func TestAnswersAreReadAsFarAsTheyCanBe(t *testing.T) {
	for in, want := range map[string]string{
		`{"n":1e400,"s":"\ud800","n2":9007199254740993}`: `{"n":"1e400","n2":9007199254740993,"s":"�"}`,
		`{"a":1,"a":2}`: `{"a":2}`,
		`5.0`:           `5`,
	} {
		v, ok := ParseAnswer([]byte(in))
		if !ok {
			t.Errorf("%s is refused", in)
			continue
		}
		if got, err := Append(nil, v); err != nil || string(got) != want {
			t.Errorf("%s became %s, %v, want %s", in, got, err, want)
		}
	}
	for _, bad := range []string{``, ` `, `{`, `{"a":1}x`, `1 2`, `nul`, "\"\xff\"", "\xef\xbb\xbf1"} {
		if v, ok := ParseAnswer([]byte(bad)); ok {
			t.Errorf("%q became %v", bad, v)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	v, err := structpb.NewValue(map[string]any{"amount": 3, "currency": "EUR", "note": "for the rent"})
	if err != nil {
		b.Fatal(err)
	}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		if buf, err = Append(buf[:0], v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse([]byte(`{"total":12345}`)); err != nil {
			b.Fatal(err)
		}
	}
}
