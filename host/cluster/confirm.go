package cluster

import (
	"context"
	"time"

	"github.com/hostd/hostd/host/request"
)

// confirmation batches the reads that confirm a "not found". A node must not
// report that something does not exist because its metadata is stale. Callers
// who need a confirmation share one read of the metadata that began after they
// asked.
type confirmation struct {
	turn  chan struct{} // one slot, held during a read
	began time.Time     // start of the last read
	err   error         // result of the last read
}

// ConfirmTime bounds one read of Confirm. If the node knows no leader by then,
// Confirm fails.
const ConfirmTime = request.LeaderPatience

// Confirm waits until this node has caught up with the metadata through a read
// that began after the call. It waits for at most two reads and not beyond the
// end of ctx.
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
	// All callers who wait share this read, so it must continue even if this
	// caller's context ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ConfirmTime)
	defer cancel()
	c.began = time.Now()
	c.err = m.CatchUp(ctx)
	return c.err
}
