package stall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// stallAfter is the minimum time for which the raft loop must stall, or the
// disk must not respond, before the node becomes unready. The minimum is
// three times suspect-after if that is longer.
const stallAfter = 2 * time.Second

// errDisk means that the disk of the write-ahead log does not respond.
var errDisk = errors.New("the disk of the write-ahead log does not answer")

// GuardOptions configures a Guard. All fields are required.
type GuardOptions struct {
	Raft         turnCounter
	SuspectAfter time.Duration // time after which other nodes suspect a node
	EndAfter     time.Duration // time without a response of the disk after which the process ends
	Node         guarded
	Logger       *slog.Logger
}

// guarded is the node whose stalls a Guard detects.
type guarded interface {
	// Stopping reports whether the node is stopping, which ends the raft loop.
	Stopping() bool
	// OnStall is called when the loop stalls and when it resumes.
	OnStall(stalled bool)
	// End is called when the disk has not responded for EndAfter.
	End(why error)
}

// Guard reacts to the stalls that a Watch detects. A stalled raft loop cannot
// transfer its leaderships, so OnStall has to make other nodes take them over. A
// process whose disk has not responded for EndAfter is useless, and dangerous
// if it resumes much later, so End has to end it. Guard is safe for concurrent
// use.
type Guard struct {
	*Watch
	opts    GuardOptions
	stalled atomic.Bool
}

// NewGuard returns a Guard with a Watch of its own.
func NewGuard(opts GuardOptions) *Guard { return &Guard{Watch: New(opts.Raft), opts: opts} }

// Run watches until ctx ends.
func (g *Guard) Run(ctx context.Context) { g.Watch.Run(ctx, g.follow) }

// IsStalled reports whether the raft loop is stalled.
func (g *Guard) IsStalled() bool { return g.stalled.Load() }

func (g *Guard) follow() {
	if g.opts.Node.Stopping() {
		return
	}
	hangs := g.Disk()
	stands := max(hangs, g.Loop()) >= max(stallAfter, 3*g.opts.SuspectAfter-period)
	if g.stalled.Swap(stands) != stands {
		if stands {
			g.opts.Logger.Error("the raft loop has stalled; other nodes take over this node's leaderships", "disk_does_not_answer", hangs > 0)
		} else {
			g.opts.Logger.Info("the raft loop has resumed")
		}
		g.opts.Node.OnStall(stands)
	}
	if hangs >= g.opts.EndAfter {
		g.opts.Node.End(diskError(hangs))
	}
}

// StallError returns an error that says why a node with a stalled loop is not
// ready.
func (g *Guard) StallError() error {
	if d := g.Disk(); d > 0 {
		return diskError(d)
	}
	return fmt.Errorf("the raft loop has stalled for %v", g.Loop().Round(time.Second))
}

func diskError(d time.Duration) error {
	return fmt.Errorf("%w, for %v", errDisk, d.Round(time.Second))
}
