package config_test

import (
	"strings"
	"testing"

	"github.com/hostd/hostd/host/config"
)

// TestTheFirstAdminIsASourceOfCallers: who is let in is known by its file
// alone, where somebody is asked for a credential.
func TestTheFirstAdminIsASourceOfCallers(t *testing.T) {
	for _, tt := range []struct {
		auth config.Auth
		file string
		key  string // that is wrong; empty: none
	}{
		{config.AuthRequired, "first", ""}, {config.AuthAllow, "first", ""}, {config.AuthNone, "", ""},
		{config.AuthRequired, "", "auth"}, {config.AuthNone, "first", "auth-bootstrap-file"},
	} {
		c := config.Default()
		c.Auth, c.AuthBootstrapFile = tt.auth, tt.file
		err := c.Validate()
		if tt.key == "" && err != nil || tt.key != "" && (err == nil || !strings.Contains(err.Error(), tt.key)) {
			t.Errorf("%s with the file %q: %v", tt.auth, tt.file, err)
		}
	}
}
