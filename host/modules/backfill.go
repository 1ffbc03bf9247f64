package modules

import (
	"context"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

const (
	// copyPeriod is how often a node checks whether it has every module.
	copyPeriod = 10 * time.Second
	// copyTime bounds the fetching of one module.
	copyTime = 30 * time.Second
	// minCopyPause and maxCopyPause bound the pause between attempts to fetch a
	// module that no other node provided.
	minCopyPause = 10 * time.Second
	maxCopyPause = 10 * time.Minute
)

// copies gives backfill access to the copies of modules on this node.
type copies interface {
	// modules returns the modules of the cluster.
	modules() []meta.Module
	// has reports whether the copy of a module exists and is intact. It reads
	// the module.
	has(journal.Digest) bool
	// copy fetches a module.
	copy(context.Context, journal.Digest) error
	// isFull reports whether the disk is full.
	isFull() bool
	// sweep removes modules that are not in the metadata.
	sweep(ctx context.Context) (removed []journal.Digest)
}

// backfill keeps a copy of every module of the cluster on this node. This
// includes modules that serve no type now, because such modules decided
// stored events and would be lost with the last node that they were uploaded
// to. It fetches one module at a time in the background.
type backfill struct {
	copies

	seen    map[journal.Digest]bool // modules found on this node since it started
	missing map[journal.Digest]missing
}

// missing is a module that could not be fetched.
type missing struct {
	next  time.Time
	pause time.Duration
}

// run copies missing modules to this node until ctx ends.
func (d *Distribution) run(ctx context.Context) {
	missing := backfill{copies: d}
	missing.run(ctx)
}

func (d *Distribution) modules() []meta.Module { return d.metadata.View().Modules() }

func (d *Distribution) has(digest journal.Digest) bool { return d.files.Check(digest) == nil }

func (d *Distribution) isFull() bool { return d.disk.ReadOnly() }

func (d *Distribution) copy(ctx context.Context, digest journal.Digest) error {
	err := d.Fetch(ctx, digest, "")
	if err != nil {
		d.logger.Debug("cannot copy a module", "digest", digest.String(), "error", err)
	} else {
		d.logger.Info("copied a module from another node", "digest", digest.String())
	}
	return err
}

func (b *backfill) run(ctx context.Context) {
	b.seen, b.missing = map[journal.Digest]bool{}, map[journal.Digest]missing{}
	every := time.NewTicker(copyPeriod)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			for _, digest := range b.sweep(ctx) {
				delete(b.seen, digest)
			}
			b.pass(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// pass checks all modules once.
func (b *backfill) pass(ctx context.Context) {
	for _, m := range b.modules() {
		digest := journal.Digest(m.Digest)
		switch {
		case ctx.Err() != nil || b.isFull():
			return
		case b.seen[digest] || time.Now().Before(b.missing[digest].next):
			continue
		case b.has(digest):
			b.seen[digest] = true
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, copyTime)
		err := b.copy(bounded, digest)
		cancel()
		if err == nil {
			b.seen[digest] = true
			delete(b.missing, digest)
			continue
		}
		pause := max(minCopyPause, min(2*b.missing[digest].pause, maxCopyPause))
		b.missing[digest] = missing{time.Now().Add(pause), pause}
	}
}
