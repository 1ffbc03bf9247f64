package host

import (
	"context"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

const (
	// copyPeriod is how often a node looks whether it has every module.
	copyPeriod = 10 * time.Second
	// copyTime bounds the fetching of one.
	copyTime = 30 * time.Second
	// minCopyPause and maxCopyPause lie between attempts to fetch a module that
	// no other node gave.
	minCopyPause = 10 * time.Second
	maxCopyPause = 10 * time.Minute
)

// moduleCopies keeps a copy of every module of the cluster on this node, those
// that no type is bound to as well: events were decided by them, and they would
// be lost with the last of the nodes that they were uploaded to. One is fetched
// at a time, in the background.
type moduleCopies struct {
	modules func() []meta.Module
	here    func(journal.Digest) bool // whole; it reads the module
	fetch   func(context.Context, journal.Digest) error
	full    func() bool // the disk is

	seen    map[journal.Digest]bool // here since the start
	missing map[journal.Digest]missing
}

// missing is a module that could not be fetched.
type missing struct {
	next  time.Time
	pause time.Duration
}

func (n *Node) copyModules(ctx context.Context) {
	c := moduleCopies{
		modules: func() []meta.Module { return n.metadata.View().Modules() },
		here:    func(d journal.Digest) bool { _, err := n.modules.Get(d); return err == nil },
		fetch: func(ctx context.Context, d journal.Digest) error {
			err := n.fetch(ctx, d, "")
			if err != nil {
				n.logger.Debug("a module is not copied", "digest", d.String(), "error", err)
			} else {
				n.logger.Info("a module is copied from another node", "digest", d.String())
			}
			return err
		},
		full: n.disk.readOnly.Load,
	}
	c.run(ctx)
}

func (c *moduleCopies) run(ctx context.Context) {
	c.seen, c.missing = map[journal.Digest]bool{}, map[journal.Digest]missing{}
	every := time.NewTicker(copyPeriod)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			c.pass(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// pass looks at all modules once.
func (c *moduleCopies) pass(ctx context.Context) {
	for _, m := range c.modules() {
		digest := journal.Digest(m.Digest)
		switch {
		case ctx.Err() != nil || c.full():
			return
		case c.seen[digest] || time.Now().Before(c.missing[digest].next):
			continue
		case c.here(digest):
			c.seen[digest] = true
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, copyTime)
		err := c.fetch(bounded, digest)
		cancel()
		if err == nil {
			c.seen[digest] = true
			delete(c.missing, digest)
			continue
		}
		pause := max(minCopyPause, min(2*c.missing[digest].pause, maxCopyPause))
		c.missing[digest] = missing{time.Now().Add(pause), pause}
	}
}
