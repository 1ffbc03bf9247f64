package replay

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

const (
	// piece is how many events are folded between two looks at the pace: a guest
	// takes a millisecond for them, or a few.
	piece = 256
	// entityCosts is how many events an entity counts as besides its own: its
	// state is loaded, written and compared.
	entityCosts = 20
	// yieldEvery is between two looks at lanes that are busy, and yieldMost how
	// long they are waited for: a verification goes on, however slowly.
	yieldEvery = 2 * time.Millisecond
	yieldMost  = 100 * time.Millisecond
)

// pace holds work beside the lanes back, such as verifications: to so many
// events a second, and while requests wait for lanes. One goroutine uses it at
// a time. A nil pace holds nothing back.
type pace struct {
	limit *rate.Limiter // nil: none
	busy  func() bool
	due   int // events that were folded since it was looked at
}

// newPace makes the pace of a node; perSecond 0 is any rate.
func newPace(perSecond int, busy func() bool) *pace {
	p := &pace{busy: busy}
	if perSecond > 0 {
		p.limit = rate.NewLimiter(rate.Limit(perSecond), max(piece, perSecond/20))
	}
	return p
}

// spend counts events, and waits where they are too many or lanes are busy. It
// returns the error of a ctx that has ended.
func (p *pace) spend(ctx context.Context, events int) error {
	if p == nil {
		return nil
	}
	for p.due += events; p.due >= piece; p.due -= piece {
		if p.limit != nil {
			if err := p.limit.WaitN(ctx, piece); err != nil {
				return err
			}
		}
		if err := p.yield(ctx); err != nil {
			return err
		}
	}
	return nil
}

// yield waits while requests wait for lanes, for so long at most.
func (p *pace) yield(ctx context.Context) error {
	for waited := time.Duration(0); waited < yieldMost && p.busy(); waited += yieldEvery {
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
