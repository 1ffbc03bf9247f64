package modules

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// fakeCopies are the copies of a node without a disk.
type fakeCopies struct {
	all        []journal.Digest
	here, lost journal.Digest // a module of which this node has a copy, and a module that no node has
	full       atomic.Bool
	began      time.Time

	mu     sync.Mutex // guards the fields below
	asked  []journal.Digest
	lostAt []time.Duration
}

func (f *fakeCopies) modules() (all []meta.Module) {
	for _, d := range f.all {
		all = append(all, meta.Module{Digest: meta.Digest(d)})
	}
	return all
}

func (f *fakeCopies) has(d journal.Digest) bool              { return d == f.here }
func (f *fakeCopies) isFull() bool                           { return f.full.Load() }
func (f *fakeCopies) sweep(context.Context) []journal.Digest { return nil }

func (f *fakeCopies) copy(_ context.Context, d journal.Digest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, d)
	if d == f.lost {
		f.lostAt = append(f.lostAt, time.Since(f.began))
		return errors.New("nobody has it")
	}
	return nil
}

// TestMissingModulesAreFetched checks that missing modules are fetched, that modules that
// no node has are requested less and less often, and that nothing is fetched
// onto a full disk.
func TestMissingModulesAreFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		have, away, lost := journal.Digest{1}, journal.Digest{2}, journal.Digest{3}
		f := &fakeCopies{all: []journal.Digest{have, lost, away}, here: have, lost: lost, began: time.Now()}
		f.full.Store(true)
		c := backfill{copies: f}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.run(ctx); close(done) }()
		time.Sleep(time.Minute)
		f.mu.Lock()
		if len(f.asked) > 0 {
			t.Errorf("fetched onto a full disk: %v", f.asked)
		}
		f.mu.Unlock()
		f.full.Store(false)
		time.Sleep(2 * time.Hour)
		cancel()
		<-done
		if n := len(slices.DeleteFunc(f.asked, func(d journal.Digest) bool { return d != away })); n != 1 {
			t.Errorf("what was away was fetched %d times", n)
		}
		if n := len(f.lostAt); n < 10 || n > 20 {
			t.Errorf("what is lost was asked for %d times in two hours: %v", n, f.lostAt)
		}
	})
}
