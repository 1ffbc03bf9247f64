package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTokenHashFileIsRejected checks that a command rejects the token file of a
// node, instead of sending a hash as if it were a token.
func TestTokenHashFileIsRejected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	read := func(text string) (string, error) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadToken(t.Context(), path)
	}
	hash := strings.Repeat("0F", 32)
	for _, list := range []string{"ci:" + hash, "ci:" + hash + "\n", "\n# machines\n  ci:" + hash + ":2030-01-31T00:00:00Z\r\nann:" + hash} {
		if token, err := read(list); token != "" || err == nil || !strings.Contains(err.Error(), "only hashes") || !strings.Contains(err.Error(), "--out") || strings.Contains(err.Error(), hash[:8]) {
			t.Errorf("%q: %q, %v", list, token, err)
		}
	}
	for _, token := range []string{"hst_0abc", "eyJh.e30.c2ln", hash, "a~b+c/d=="} {
		if got, err := read("\n" + token + "\n"); got != token || err != nil {
			t.Errorf("%q: %q, %v", token, got, err)
		}
	}
	for _, neither := range []string{"", "# none\n", "a b", "one\ntwo", "admin group:ops"} {
		if token, err := read(neither); token != "" || err == nil || strings.Contains(err.Error(), "hashes") {
			t.Errorf("%q: %q, %v", neither, token, err)
		}
	}
}
