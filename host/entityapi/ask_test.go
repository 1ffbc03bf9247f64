package entityapi

import (
	"context"
	"errors"
	"testing"

	"github.com/hostd/hostd/host/request"
)

// TestAbandonedChangeHasUnknownOutcome: a submitted change may take effect
// after its caller's deadline.
func TestAbandonedChangeHasUnknownOutcome(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for kind, unknown := range map[request.Kind]bool{
		request.Delete: true, request.SkipTimer: true, request.Redeliver: true, request.Discard: true, request.SendAgain: true,
		request.Passivate: false, request.Clear: false, request.Fence: false,
	} {
		err := abandonedError(ctx, kind)
		if errors.Is(err, request.ErrOutcomeUnknown) != unknown || !errors.Is(err, context.Canceled) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
}
