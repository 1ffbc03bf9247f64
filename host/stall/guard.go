package stall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// standsAfter is how long at least the raft loop stands still, or the disk does
// not answer, before the node is not ready; the others count it as silent after
// three times suspect-after.
const standsAfter = 2 * time.Second

// ErrDisk ends the process.
var ErrDisk = errors.New("the disk of the write-ahead log does not answer")

// GuardOptions of a Guard; all are required.
type GuardOptions struct {
	Turns       func() uint64 // see New
	SilentAfter time.Duration // after which others count a node as silent
	EndAfter    time.Duration // the disk has not answered
	Stopping    func() bool   // the loop ends in order
	Stands      func(bool)    // told when the loop stands still, and when it goes on
	End         func(error)   // told that the disk has not answered for EndAfter
	Logger      *slog.Logger
}

// Guard draws the consequences of what a Watch sees. A loop that stands still
// cannot give its leaderships away: the others take them. A process whose disk
// has not answered for too long is of no use, and may come back to life much
// later: it ends. It is safe for concurrent use.
type Guard struct {
	*Watch
	opts   GuardOptions
	stands atomic.Bool
}

// NewGuard makes a guard with a watch of its own.
func NewGuard(opts GuardOptions) *Guard { return &Guard{Watch: New(opts.Turns), opts: opts} }

// Run looks until ctx ends.
func (g *Guard) Run(ctx context.Context) { g.Watch.Run(ctx, g.follow) }

// Stands reports that the raft loop stands still.
func (g *Guard) Stands() bool { return g.stands.Load() }

func (g *Guard) follow() {
	if g.opts.Stopping() {
		return
	}
	hangs := g.Disk()
	stands := max(hangs, g.Loop()) >= max(standsAfter, 3*g.opts.SilentAfter-Period)
	if g.stands.Swap(stands) != stands {
		if stands {
			g.opts.Logger.Error("the raft loop stands still: other nodes take over what this one leads", "disk_does_not_answer", hangs > 0)
		} else {
			g.opts.Logger.Info("the raft loop goes on")
		}
		g.opts.Stands(stands)
	}
	if hangs >= g.opts.EndAfter {
		g.opts.End(diskError(hangs))
	}
}

// Standing says why a node whose loop stands still is not ready.
func (g *Guard) Standing() error {
	if d := g.Disk(); d > 0 {
		return diskError(d)
	}
	return fmt.Errorf("the raft loop has stood still for %v", g.Loop().Round(time.Second))
}

func diskError(d time.Duration) error {
	return fmt.Errorf("%w, for %v", ErrDisk, d.Round(time.Second))
}
