package cli

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
)

// TestAnInternalCommandIsNoMatterOfRoles: who sends one is not told to look at
// roles, which do not help.
func TestAnInternalCommandIsNoMatterOfRoles(t *testing.T) {
	refused := &client.Error{Code: connect.CodePermissionDenied, Message: "no"}
	if next := NextStep(refused); !strings.Contains(next, "auth can-i") {
		t.Errorf("refused by roles: %q", next)
	}
	refused.Reason = "INTERNAL_COMMAND"
	if next := NextStep(refused); strings.Contains(next, "auth can-i") || !strings.Contains(next, "module describe") {
		t.Errorf("an internal command: %q", next)
	}
}
