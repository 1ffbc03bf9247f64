package config_test

import (
	"strings"
	"testing"

	"github.com/hostd/hostd/host/config"
)

// TestAuthBootstrapFileIsACredentialSource: auth-bootstrap-file alone is a
// sufficient source of credentials. A configuration without any source is valid
// too, because the cluster may hold tokens.
func TestAuthBootstrapFileIsACredentialSource(t *testing.T) {
	for _, tt := range []struct {
		auth config.Auth
		file string
		key  string // the invalid key; empty: none
	}{
		{config.AuthRequired, "first", ""}, {config.AuthAllow, "first", ""}, {config.AuthNone, "", ""},
		{config.AuthRequired, "", ""}, {config.AuthNone, "first", "auth-bootstrap-file"},
	} {
		c := config.Default()
		c.Auth, c.AuthBootstrapFile = tt.auth, tt.file
		err := c.Validate()
		if tt.key == "" && err != nil || tt.key != "" && (err == nil || !strings.Contains(err.Error(), tt.key)) {
			t.Errorf("%s with the file %q: %v", tt.auth, tt.file, err)
		}
		if got := c.IdentifiesCallers(); got != (tt.file != "") {
			t.Errorf("%s with the file %q knows callers: %v", tt.auth, tt.file, got)
		}
	}
}
