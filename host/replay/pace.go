package replay

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/time/rate"
)

const (
	// piece is how many events are replayed between two checks of the pace. A
	// guest needs one or a few milliseconds for them.
	piece = 256
	// entityCosts is the fixed cost of an entity, in events: its state is loaded,
	// written and compared.
	entityCosts = 20
	// yieldEvery is the pause between two checks whether executors are busy.
	// yieldMost bounds the total wait, so that a verification makes progress,
	// however slowly.
	yieldEvery = 2 * time.Millisecond
	yieldMost  = 100 * time.Millisecond
)

// pace limits background work such as verifications: it bounds the events per
// second and waits while requests wait for executors. Only one goroutine may
// use it at a time. A nil pace does not limit anything.
type pace struct {
	limit *rate.Limiter // nil: no limit
	load  load
	due   int // events replayed since the last check
}

// newPace returns the pace of a node. perSecond 0 means no limit on events.
func newPace(perSecond int, l load) *pace {
	p := &pace{load: l}
	if perSecond > 0 {
		p.limit = rate.NewLimiter(rate.Limit(perSecond), max(piece, perSecond/20))
	}
	return p
}

// spend counts events, and waits if the rate is exceeded or executors are busy.
// It returns an error if ctx has ended.
func (p *pace) spend(ctx context.Context, events int) error {
	if p == nil {
		return nil
	}
	for p.due += events; p.due >= piece; p.due -= piece {
		if p.limit != nil {
			if p.limit.WaitN(ctx, piece) != nil {
				// WaitN fails at once, with an error of its own, if the wait
				// would last beyond the deadline.
				return cmp.Or(ctx.Err(), context.DeadlineExceeded)
			}
		}
		if err := p.yield(ctx); err != nil {
			return err
		}
	}
	return nil
}

// yield waits while requests wait for executors, up to yieldMost.
func (p *pace) yield(ctx context.Context) error {
	for waited := time.Duration(0); waited < yieldMost && p.load.IsBusy(); waited += yieldEvery {
		timer := time.NewTimer(yieldEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
	return ctx.Err()
}
