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
	if next := NextStep(refused); !strings.Contains(next, "auth whoami") {
		t.Errorf("refused by roles: %q", next)
	}
	refused.Reason = "INTERNAL_COMMAND"
	if next := NextStep(refused); strings.Contains(next, "auth whoami") || !strings.Contains(next, "module describe") {
		t.Errorf("an internal command: %q", next)
	}
}

// TestAFailedGuestIsLookedAtByCommands: the log of one node of many is not where
// its lines are found.
func TestAFailedGuestIsLookedAtByCommands(t *testing.T) {
	next := NextStep(&client.Error{Code: connect.CodeInternal, Message: "guest fault"})
	for _, want := range []string{"hostd logs TYPE", "hostd entity get TYPE ID"} {
		if !strings.Contains(next, want) {
			t.Errorf("%q lacks %q", next, want)
		}
	}
}

// TestWhatIsNoJSONIsQuoted: who forgot the quotes of the shell is shown them.
func TestWhatIsNoJSONIsQuoted(t *testing.T) {
	refused := &client.Error{Code: connect.CodeInvalidArgument, Message: "data is not JSON text, and the entity type's encoding is json"}
	if next := NextStep(refused); !strings.Contains(next, `'{"amount":3}'`) {
		t.Errorf("no JSON: %q", next)
	}
	refused.Message = "the payload does not fit the schema"
	if next := NextStep(refused); next != "" {
		t.Errorf("another fault of a payload: %q", next)
	}
}
