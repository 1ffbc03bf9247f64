package authn

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding/access"
)

// line returns the line for a valid token.
func line(t testing.TB, name, token string, expires time.Time) string {
	t.Helper()
	l, err := TokenLine(name, token, expires)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTokensAreFoundByTheirHashes(t *testing.T) {
	one, other := NewToken(), NewToken()
	end := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	table, err := parseTokens([]byte("# machines\n\n" + line(t, "ci", one, time.Time{}) + "\r\n  " + line(t, "ann@example.org", other, end)))
	if err != nil {
		t.Fatal(err)
	}
	if p := table.find(access.HashToken(one)); p == nil || p.Name != "ci" || p.Kind != KindToken || !p.Expires.IsZero() {
		t.Errorf("the first token is of %+v", p)
	}
	if p := table.find(access.HashToken(other)); p == nil || p.Name != "ann@example.org" || !p.Expires.Equal(end) {
		t.Errorf("the last token is of %+v", p)
	}
	for _, wrong := range []string{"", tokenPrefix, one[:len(one)-1], one + "0", NewToken(), strings.ToUpper(one)} {
		if p := table.find(access.HashToken(wrong)); p != nil {
			t.Errorf("%q is of %+v", wrong, p)
		}
	}
}

func TestNewTokens(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		token := NewToken()
		if len(token) != len(tokenPrefix)+tokenDigits || !strings.HasPrefix(token, tokenPrefix) || seen[token] {
			t.Fatalf("%q is no new token", token)
		}
		seen[token] = true
	}
}

func TestInvalidTokenFilesAreRejected(t *testing.T) {
	hash := strings.Repeat("0f", 32)
	var many strings.Builder
	for i := range maxTokens + 1 {
		fmt.Fprintf(&many, "n:%064x\n", i)
	}
	for _, c := range []struct{ text, says string }{
		{"", "the file is empty"},
		{"\n\n", "the file is empty"},
		{"ci", "line 1: the line must be name"},
		{"# machines\n" + NewToken(), "line 2: the line contains a token instead of its hash: 'hostd token create NAME --file FILE'"},
		{"eyJhbGciOiJSUzI1NiJ9.e30.c2ln", "line 1: the line contains a token"},
		{"\n#\nci:" + hash[1:], "line 3: the hash must have 64"},
		{"ci:" + hash + "00", "the hash must have 64"},
		{"ci:" + strings.Repeat("g", 64), "not hexadecimal"},
		{":" + hash, "token must have 1 to"},
		{"a b:" + hash, "token may have only letters"},
		{strings.Repeat("n", access.MaxTokenNameBytes+1) + ":" + hash, "token must have 1 to"},
		{"ci:" + hash + ":", "RFC 3339"},
		{"ci:" + hash + ":tomorrow", "RFC 3339"},
		{"ci:" + hash + ":2030-01-31", "RFC 3339"},
		{"ci:" + hash + ":0001-01-01T00:00:00Z", "RFC 3339"},
		{"a:" + hash + "\nb:" + strings.ToUpper(hash), "line 2: the file lists the token twice"},
		{many.String(), fmt.Sprintf("line %d: the file has more than", maxTokens+1)},
		{strings.Repeat("#\n", maxTokenFileBytes), "more than"},
	} {
		if _, err := parseTokens([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.80q: %v, want %q", c.text, err, c.says)
		}
		if _, err := parseTokens([]byte(c.text)); err != nil && (strings.Contains(err.Error(), hash[:8]) || strings.Contains(err.Error(), tokenPrefix)) {
			t.Errorf("%.80q: the error tells what is in the file: %v", c.text, err)
		}
	}
}

func FuzzParseTokens(f *testing.F) {
	hash := strings.Repeat("0f", 32)
	for _, seed := range []string{"", "#\n", "ci:" + hash, "ci:" + hash + ":2030-01-31T00:00:00Z\n", "a:b:c:d", "\x00:\xff", "ci:" + hash + "\r\nci:" + strings.ToUpper(hash)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := parseTokens(text)
		if err != nil {
			if table != nil || strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("%v with %v", err, table)
			}
			return
		}
		if len(table.hashes) != len(table.principals) || len(table.hashes) > maxTokens {
			t.Fatalf("%d hashes of %d principals", len(table.hashes), len(table.principals))
		}
		// A parsed file can be written and parsed again with the same result.
		var again strings.Builder
		again.WriteString("#\n")
		for i, p := range table.principals {
			if access.CheckTokenName(p.Name) != nil {
				t.Fatalf("a token of %q", p.Name)
			}
			fmt.Fprintf(&again, "%s:%x", p.Name, table.hashes[i])
			if !p.Expires.IsZero() {
				again.WriteString(":" + p.Expires.Format(time.RFC3339))
			}
			again.WriteByte('\n')
		}
		second, err := parseTokens([]byte(again.String()))
		if err != nil {
			t.Fatalf("%v\n%s", err, again.String())
		}
		for i, p := range second.principals {
			if first := table.principals[i]; p.Name != first.Name || p.Expires.Unix() != first.Expires.Unix() || second.hashes[i] != table.hashes[i] {
				t.Fatalf("%+v became %+v", first, p)
			}
		}
	})
}
