package abi

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestValidateEntityType(t *testing.T) {
	for _, good := range []string{"a", "counter", "a-b-9", "-", strings.Repeat("z", MaxEntityTypeBytes)} {
		if err := ValidateEntityType(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "Counter", "a_b", "a b", "a.b", "é", "a\x00", strings.Repeat("z", MaxEntityTypeBytes+1)} {
		var nameError *NameError
		if err := ValidateEntityType(bad); !errors.As(err, &nameError) || nameError.Noun != "entity type" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestTypePatterns(t *testing.T) {
	for pattern, ok := range map[string]bool{
		"a": true, "audit-*": true, "*": true, strings.Repeat("a", 64) + "*": true,
		"": false, "**": false, "a*b": false, "*a": false, "A*": false, strings.Repeat("a", 65): false, strings.Repeat("a", 65) + "*": false,
	} {
		if err := ValidateTypePattern(pattern); (err == nil) != ok {
			t.Errorf("%q: %v", pattern, err)
		}
	}
	for _, tt := range []struct {
		patterns []string
		name     string
		want     bool
	}{
		{nil, "any", true}, {[]string{}, "any", false}, {[]string{"*"}, "any", true},
		{[]string{"account", "audit-*"}, "account", true}, {[]string{"account", "audit-*"}, "accounts", false}, {[]string{"account"}, "accoun", false},
		{[]string{"audit-*"}, "audit-", true}, {[]string{"audit-*"}, "audit-1", true}, {[]string{"audit-*"}, "audit", false}, {[]string{"audit-*"}, "", false},
	} {
		if MatchesType(tt.patterns, tt.name) != tt.want || MatchesType(tt.patterns, []byte(tt.name)) != tt.want {
			t.Errorf("%q of %q is not %v", tt.name, tt.patterns, tt.want)
		}
	}
}

func TestValidateEntityID(t *testing.T) {
	for _, good := range []string{
		"a", "A b/c:d%", "räksmörgås", "東京", "👩‍👧", "\u00a0", "\ufffd", "\u2027", "\u202f", "\ufefe", "\U0010ffff",
		strings.Repeat("x", MaxEntityIDBytes), strings.Repeat("é", MaxEntityIDBytes/2),
	} {
		if err := ValidateEntityID(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"":                                      "is empty",
		"a\nb":                                  "contains a control character",
		"\x00":                                  "contains a control character",
		"é\x1f":                                 "contains a control character",
		"\x7f":                                  "contains a control character",
		"\u0080":                                "contains a control character",
		"\u009f":                                "contains a control character",
		"x\u2028":                               "contains a control character",
		"\u202e":                                "contains a control character",
		"\u2066":                                "contains a control character",
		"\ufeff":                                "contains a control character",
		"\uffff":                                "contains a control character",
		"a\xff":                                 "is not valid UTF-8",
		"\xc0\x80":                              "is not valid UTF-8",
		"\xed\xa0\x80":                          "is not valid UTF-8", // a surrogate
		"é\xe2\x82":                             "is not valid UTF-8", // truncated
		strings.Repeat("x", MaxEntityIDBytes+1): "257 bytes, limit 256",
		strings.Repeat("é", MaxEntityIDBytes/2+1):  "258 bytes, limit 256",
		strings.Repeat("\x00", MaxEntityIDBytes+1): "257 bytes, limit 256",
	} {
		var nameError *NameError
		if err := ValidateEntityID(bad); !errors.As(err, &nameError) || nameError.Reason != want {
			t.Errorf("%q: %v, want %s", bad, err, want)
		}
	}
}

func TestValidateNameNamesItsNoun(t *testing.T) {
	if err := ValidateName("command", "add"); err != nil {
		t.Error(err)
	}
	if err := ValidateName("tag", strings.Repeat("x", MaxNameBytes)); err != nil {
		t.Error(err)
	}
	if err := ValidateName("tag", strings.Repeat("x", MaxNameBytes+1)); err == nil || err.Error() != "tag: 256 bytes, limit 255" {
		t.Error(err)
	}
	if err := ValidateName("command", ""); err == nil || err.Error() != "command: is empty" {
		t.Error(err)
	}
}

func TestValidatingDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		if ValidateEntityID("räksmörgås") != nil || ValidateEntityType("counter") != nil {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzNames checks that the fast paths agree with the definition in the doc
// comment.
func FuzzNames(f *testing.F) {
	for _, seed := range []string{"", "counter", "a\nb", "räksmörgås", "\xff", "\u2028", strings.Repeat("x", 257)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		want := len(name) > 0 && len(name) <= MaxEntityIDBytes && utf8.ValidString(name)
		for _, r := range name {
			refused := r < 0x20 || r >= 0x7f && r <= 0x9f || r == 0x2028 || r == 0x2029 ||
				r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0xfeff || r == 0xfffe || r == 0xffff
			want = want && !refused
		}
		if got := ValidateEntityID(name) == nil; got != want {
			t.Errorf("id %q: %v, want %v", name, got, want)
		}
		wantType := len(name) > 0 && len(name) <= MaxEntityTypeBytes && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
		if got := ValidateEntityType(name) == nil; got != wantType {
			t.Errorf("type %q: %v, want %v", name, got, wantType)
		}
	})
}
