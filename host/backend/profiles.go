package backend

import (
	"context"
	"time"

	"github.com/hostd/hostd/host/modules"
)

// profiles measure the guests of this node's lanes.
type profiles struct{ *Parts }

// Profile implements profiling.Sampler.
func (p profiles) Profile(ctx context.Context, entityType string, long time.Duration) ([]modules.GuestStack, error) {
	return p.Modules.Types.Profile(ctx, entityType, long)
}
