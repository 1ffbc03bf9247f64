package jsontext

import (
	"bytes"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
)

// cases returns the cases of testdata/cases.txt, which tests of the API and of
// the SDKs use too.
func cases(t testing.TB) map[string]string {
	text, err := os.ReadFile("testdata/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if in, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " => "); ok {
			out[in] = want
		}
	}
	return out
}

func TestCanonicalTextOfCornerCases(t *testing.T) {
	for in, want := range cases(t) {
		got, err := Canonical([]byte(in))
		if want == "refused" {
			if err == nil || IsValid([]byte(in)) {
				t.Errorf("%s became %s, want an error", in, got)
			}
			continue
		}
		if err != nil || string(got) != want || !IsValid([]byte(in)) {
			t.Errorf("%s: got %s, %v, want %s", in, got, err, want)
			continue
		}
		again, err := Canonical(got)
		if err != nil || len(again) > 0 && &again[0] != &got[0] {
			t.Errorf("%s is not its own canonical text: %s, %v", got, again, err)
		}
	}
	for _, bad := range []string{"", " ", "\"\xff\"", "\xef\xbb\xbf1", "\"\xed\xa0\x80\"", "1\x00"} {
		if got, err := Canonical([]byte(bad)); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

// TestErrorsHaveOffsetWithoutPayload checks that errors do not repeat
// payloads, so that payloads do not get into logs.
func TestErrorsHaveOffsetWithoutPayload(t *testing.T) {
	_, err := Canonical([]byte(`{"secret":[1e400]}`))
	if err == nil || err.Error() != "number beyond the range of a double at byte 11" {
		t.Error(err)
	}
}

func TestNestingIsBounded(t *testing.T) {
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if !IsValid(deep(MaxDepth)) || IsValid(deep(MaxDepth+1)) || IsValid(bytes.Repeat([]byte(`{"a":`), 1<<20)) {
		t.Error("the depth is not bounded at MaxDepth")
	}
}

// TestSortingIsBounded uses objects that are out of order at every level, so
// that each level moves everything inside it. The work of sorting must stay
// within its limit.
func TestSortingIsBounded(t *testing.T) {
	nested := func(levels, size int) []byte {
		return []byte(strings.Repeat(`{"b":0,"a":`, levels) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat("}", levels))
	}
	if got, err := Canonical(nested(50, 1<<20)); err != nil || !bytes.HasPrefix(got, []byte(`{"a":{"a":`)) {
		t.Errorf("50 levels: %.40s, %v", got, err)
	}
	if _, err := Canonical(nested(5_000, 1<<20)); err == nil {
		t.Error("5,000 levels of 1 MiB were sorted")
	}
}

func TestSplit(t *testing.T) {
	var got []string
	text := ` { "b" : [1, {"x":2}] , "a\u0061":"}" }`
	if err := Split([]byte(text), func(name []byte, start, end int) { got = append(got, string(name)+"="+text[start:end]) }); err != nil {
		t.Fatal(err)
	}
	if err := Split([]byte(`[1,[2,3],{"a":4}]`), func(name []byte, start, end int) { got = append(got, strconv.Itoa(start)+"-"+strconv.Itoa(end)) }); err != nil {
		t.Fatal(err)
	}
	if s := strings.Join(got, "; "); s != `b=[1, {"x":2}]; aa="}"; 1-2; 3-8; 9-16` {
		t.Error(s)
	}
	if err := Split([]byte(`{"a":1,"a":2}`), func([]byte, int, int) {}); err == nil {
		t.Error("a duplicate member was accepted")
	}
}

// FuzzCanonical checks that accepted text is JSON to encoding/json too, with
// the same strings and doubles, and that canonical text is a fixed point.
func FuzzCanonical(f *testing.F) {
	for in := range cases(f) {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := Canonical(in)
		if err != nil {
			return
		}
		if !json.Valid(in) || !json.Valid(got) {
			t.Fatalf("%q became %q", in, got)
		}
		if again, err := Canonical(got); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q became %q and then %q, %v", in, got, again, err)
		}
		var a, b any
		if json.Unmarshal(in, &a) != nil || json.Unmarshal(got, &b) != nil {
			return // too deep for encoding/json
		}
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		if !bytes.Equal(bytes.ReplaceAll(x, []byte("-0"), []byte("0")), bytes.ReplaceAll(y, []byte("-0"), []byte("0"))) {
			t.Fatalf("%q became %q: %s, %s", in, got, x, y)
		}
	})
}

func BenchmarkCanonicalText(b *testing.B) {
	text := []byte(`{"amount":3,"currency":"EUR","note":"for the rent"}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Canonical(text); err != nil {
			b.Fatal(err)
		}
	}
}
