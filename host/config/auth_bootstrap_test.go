package config_test

import (
	"strings"
	"testing"

	"github.com/hostd/hostd/host/config"
)

// TestTheFirstAdminIsASourceOfCallers: the file alone says who callers are, if
// they are asked for a credential. A configuration that says nothing is valid,
// because the cluster may keep tokens.
func TestTheFirstAdminIsASourceOfCallers(t *testing.T) {
	for _, tt := range []struct {
		auth config.Auth
		file string
		key  string // that is wrong; empty: none
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
