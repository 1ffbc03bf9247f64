package entityapi

import (
	"fmt"
	"log/slog"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/status"
)

// TestUnknownDeadLettersAreNotFound checks that errNoDeadLetter has the code
// not_found.
func TestUnknownDeadLettersAreNotFound(t *testing.T) {
	for _, err := range []error{errNoDeadLetter, fmt.Errorf("wrapped: %w", errNoDeadLetter)} {
		if public := status.Public(slog.New(slog.DiscardHandler), err); public.Code() != connect.CodeNotFound || public.Message() != err.Error() {
			t.Errorf("%v %q", public.Code(), public.Message())
		}
	}
}
