package cli

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
)

// TestInternalCommandErrorHasNoRoleHint checks that a caller who sends an
// internal command gets no hint about roles, which would not help.
func TestInternalCommandErrorHasNoRoleHint(t *testing.T) {
	refused := &client.Error{Code: connect.CodePermissionDenied, Message: "no"}
	if next := NextStep(refused); !strings.Contains(next, "auth whoami") {
		t.Errorf("refused by roles: %q", next)
	}
	refused.Reason = "INTERNAL_COMMAND"
	if next := NextStep(refused); strings.Contains(next, "auth whoami") || !strings.Contains(next, "module describe") {
		t.Errorf("an internal command: %q", next)
	}
}

// TestGuestFaultHintNamesLogCommands checks that the hint names the commands
// that show the guest's log lines, because the log of any one node may not have
// them.
func TestGuestFaultHintNamesLogCommands(t *testing.T) {
	next := NextStep(&client.Error{Code: connect.CodeInternal, Message: "guest fault"})
	for _, want := range []string{"hostd logs TYPE", "hostd entity get TYPE ID"} {
		if !strings.Contains(next, want) {
			t.Errorf("%q lacks %q", next, want)
		}
	}
}

// TestInvalidJSONHintShowsQuotes checks that the hint shows the shell's quotes, which
// the user has probably forgotten.
func TestInvalidJSONHintShowsQuotes(t *testing.T) {
	refused := &client.Error{Code: connect.CodeInvalidArgument, Message: "data is not JSON text, and the entity type's encoding is json"}
	if next := NextStep(refused); !strings.Contains(next, `'{"amount":3}'`) {
		t.Errorf("no JSON: %q", next)
	}
	refused.Message = "the payload does not match the schema"
	if next := NextStep(refused); next != "" {
		t.Errorf("another fault of a payload: %q", next)
	}
}
