package bench

import (
	"context"
	"strings"
	"testing"
)

func TestRolesComeFromTheEnvironment(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, tt := range []struct {
		role  string
		args  []string
		child bool
		says  string
	}{
		{"", []string{"version"}, false, ""},
		{spinRole, nil, true, ""},
		{echoRole, nil, true, "the file for its address"},
		{"both", nil, true, "must be echo or spin"},
	} {
		t.Setenv(roleVariable, tt.role)
		child, err := RunChild(ended, tt.args)
		if child != tt.child || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: %v, %v", tt.role, child, err)
		}
	}
}
