package backend

import (
	"context"
	"time"

	"github.com/hostd/hostd/host/modules"
)

// profiles implements profiling.Sampler with the guests of this node's
// executors.
type profiles struct{ *Parts }

// Profile implements profiling.Sampler.
func (p profiles) Profile(ctx context.Context, entityType string, long time.Duration) ([]modules.GuestStack, error) {
	return p.Modules.Types.Profile(ctx, entityType, long)
}
