package clusterapi

import (
	"fmt"
	"log/slog"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/status"
)

// TestErrorCodes checks the API codes of the errors of this package.
func TestErrorCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code connect.Code
	}{
		{ErrUnknownNode, connect.CodeNotFound},
		{ErrUnknownShard, connect.CodeNotFound},
		{ErrUnknownSetting, connect.CodeNotFound},
		{&invalidSettingError{Reason: "dead after 0s"}, connect.CodeInvalidArgument},
		{&unfinishedError{"n2 still leads 3 of 4 shards"}, connect.CodeDeadlineExceeded},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
			public := status.Public(slog.New(slog.DiscardHandler), err)
			if public.Code() != c.code || public.Message() != err.Error() {
				t.Errorf("%v %q, want %v", public.Code(), public.Message(), c.code)
			}
		}
	}
}
