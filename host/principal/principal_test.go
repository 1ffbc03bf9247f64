package principal

import (
	"encoding/hex"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func make1(t testing.TB, kind Kind, name string, groups ...string) *Principal {
	t.Helper()
	p, err := New(kind, name, groups)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEncodingIsStable fixes the bytes that nodes, guests and the journal receive.
func TestEncodingIsStable(t *testing.T) {
	for want, p := range map[string]*Principal{
		"0900" + hex.EncodeToString([]byte("anonymous")) + "0000":                                                                                             OfNobody(),
		"0500" + hex.EncodeToString([]byte("token")) + "0300" + hex.EncodeToString([]byte("ann")):                                                             make1(t, Token, "ann"),
		"0300" + hex.EncodeToString([]byte("jwt")) + "0300" + hex.EncodeToString([]byte("bö")) + "0100" + hex.EncodeToString([]byte("g")) + "0000" + "01006d": make1(t, JWT, "bö", "g", "", "m"),
	} {
		if got := hex.EncodeToString(p.Bytes()); got != want {
			t.Errorf("%+v is %s, want %s", p, got, want)
		}
		back, err := Parse(p.Bytes())
		if err != nil || !reflect.DeepEqual(back, p) {
			t.Errorf("%+v comes back as %+v, %v", p, back, err)
		}
	}
}

func TestInvalidPrincipalsAreRejected(t *testing.T) {
	whole := make1(t, JWT, "bo", "g").Bytes()
	for n := range len(whole) {
		if p, err := Parse(whole[:n]); err == nil && !slices.Equal(p.Bytes(), whole[:n]) {
			t.Errorf("%d bytes are %+v", n, p)
		}
	}
	for _, b := range [][]byte{nil, {0}, {0, 0, 0, 0}, {1, 0, 'a'}, {1, 0, 0xff, 0, 0}, {1, 0, 'a', 1, 0, 0xff}, append([]byte{33, 0}, strings.Repeat("k", 33)+"\x00\x00"...)} {
		if p, err := Parse(b); !errors.Is(err, ErrInvalid) {
			t.Errorf("%x is %+v, %v", b, p, err)
		}
	}
	most := maxBytes - 4 - len(JWT)
	if _, err := New(JWT, strings.Repeat("n", most), nil); err != nil {
		t.Error(err)
	}
	if _, err := New(JWT, strings.Repeat("n", most-1), []string{""}); !errors.Is(err, errTooLarge) {
		t.Error(err)
	}
	if _, err := Parse(make([]byte, maxBytes+1)); !errors.Is(err, errTooLarge) {
		t.Error(err)
	}
}

func TestHeader(t *testing.T) {
	for want, s := range map[string]Said{
		"":                     {},
		`{"kind":"anonymous"}`: {Caller: OfNobody()},
		`{"kind":"jwt","name":"a\"<ö","groups":["x","y"],"roles":7}`: {Caller: make1(t, JWT, `a"<ö`, "x", "y"), Roles: 7},
		`{"kind":"jwt","name":"a\n"}`:                                {Caller: make1(t, JWT, "a\n")},
	} {
		if got := HeaderOf(s); got != want {
			t.Errorf("%+v is %s, want %s", s, got, want)
		}
		if back, err := ParseHeader(want); err != nil || !reflect.DeepEqual(back, s) {
			t.Errorf("%s is %+v, %v", want, back, err)
		}
	}
	for _, text := range []string{`x`, `{}`, `{"kind":""}`, ` {"kind":"jwt"}`, `{"kind":"jwt"} `, `{"kind":"jwt","kind":"token"}`, `{"name":"a","kind":"jwt"}`, `{"kind":"jwt","roles":-1}`, `{"kind":"jwt","more":1}`, `{"kind":"jwt"}{"kind":"jwt"}`, `{"kind":"jwt","groups":[]}`} {
		if s, err := ParseHeader(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s is %+v, %v", text, s, err)
		}
	}
}

// FuzzParse: a principal that parses is the same after it is encoded and parsed
// again.
func FuzzParse(f *testing.F) {
	f.Add(OfNobody().Bytes(), `{"kind":"jwt","name":"a","groups":["x"],"roles":7}`)
	f.Fuzz(func(t *testing.T, b []byte, header string) {
		if p, err := Parse(b); err == nil && !slices.Equal(p.Bytes(), b) {
			t.Errorf("%x comes back as %x", b, p.Bytes())
		}
		if s, err := ParseHeader(header); err == nil && HeaderOf(s) != header {
			t.Errorf("%s comes back as %s", header, HeaderOf(s))
		}
	})
}
