package access

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestTokensAreBounded(t *testing.T) {
	good := Token{Name: "ci@example.org", Hash: HashToken("hst_a"), Expires: 9, CreatedAt: 7}
	for name, tt := range map[string]struct {
		change func(*Token)
		good   bool
	}{
		"good":         {func(*Token) {}, true},
		"for good":     {func(t *Token) { t.Expires = 0 }, true},
		"longest name": {func(t *Token) { t.Name = strings.Repeat("a", MaxTokenNameBytes) }, true},
		"long name":    {func(t *Token) { t.Name = strings.Repeat("a", MaxTokenNameBytes+1) }, false},
		"no name":      {func(t *Token) { t.Name = "" }, false},
		"colon":        {func(t *Token) { t.Name = "a:b" }, false},
		"slash":        {func(t *Token) { t.Name = "a/b" }, false},
		"no hash":      {func(t *Token) { t.Hash = TokenHash{} }, false},
		"of nothing":   {func(t *Token) { t.Hash = HashToken("") }, false},
		"end":          {func(t *Token) { t.Expires = -1 }, false},
		"beginning":    {func(t *Token) { t.CreatedAt = -1 }, false},
	} {
		token := good
		tt.change(&token)
		if err := token.Check(); (err == nil) != tt.good || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := CheckSubject(Token{Name: strings.Repeat("a", MaxTokenNameBytes)}.Subject()); err != nil {
		t.Errorf("the longest name is no subject: %v", err)
	}
}

func TestTokenHashIsEncodedAsHex(t *testing.T) {
	text, err := json.Marshal(HashToken("hst_a"))
	var back TokenHash
	if err != nil || json.Unmarshal(text, &back) != nil || back != HashToken("hst_a") {
		t.Errorf("%s, %v", text, err)
	}
	for _, bad := range []string{`""`, `"0"`, `"` + strings.Repeat("x", 64) + `"`, `"` + strings.Repeat("0", 66) + `"`} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s is a hash", bad)
		}
	}
}
