package cluster

import (
	"context"
	"time"

	"github.com/hostd/hostd/host/request"
)

// confirmation makes sure that nothing is called unknown which another node
// knows: callers who ask for something unknown share readings of the metadata
// that began after they asked.
type confirmation struct {
	turn  chan struct{} // of one slot: held while reading
	began time.Time     // the last reading
	err   error         // what came of it
}

// ConfirmTime bounds one reading of Confirm; a node that hears no leader says
// so then.
const ConfirmTime = request.LeaderPatience

// Confirm returns once the metadata was read after the call. It takes as long
// as ctx lasts, and no longer than two readings.
func (m *Metadata) Confirm(ctx context.Context) error {
	asked, c := time.Now(), &m.confirmation
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.began.After(asked) {
		return c.err
	}
	// A reading is for all who wait for it, so it outlives its caller.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ConfirmTime)
	defer cancel()
	c.began = time.Now()
	c.err = m.CatchUp(ctx)
	return c.err
}
