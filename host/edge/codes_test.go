package edge

import (
	"fmt"
	"log/slog"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/status"
)

// TestCodes checks the codes of the server's own errors.
func TestCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code connect.Code
	}{
		{status.ErrNoMajority, connect.CodeUnavailable},
		{status.ErrAdminOff, connect.CodePermissionDenied},
		{admission.ErrStopping, connect.CodeUnavailable},
		{admission.ErrPaused, connect.CodeUnavailable},
		{status.ErrNoOutcome, connect.CodeDeadlineExceeded},
		{status.Argument("the command is empty"), connect.CodeInvalidArgument},
		{&status.RefusedError{Reason: "n2 is down"}, connect.CodeFailedPrecondition},
		{&status.FutureSequenceError{Asked: 7, Last: 6}, connect.CodeInvalidArgument},
		{&status.StateTruncatedError{From: 5}, connect.CodeOutOfRange},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
			public := status.Public(slog.New(slog.DiscardHandler), err)
			if public.Code() != c.code || public.Message() != err.Error() {
				t.Errorf("%v %q, want %v", public.Code(), public.Message(), c.code)
			}
		}
	}
}
