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

// TestMissingModulesAreFetched checks that missing modules are fetched, that modules that
// no node has are requested less and less often, and that nothing is fetched
// onto a full disk.
func TestMissingModulesAreFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		have, away, lost := journal.Digest{1}, journal.Digest{2}, journal.Digest{3}
		var full atomic.Bool
		full.Store(true)
		var mu sync.Mutex // guards the following
		var asked []journal.Digest
		var lostAt []time.Duration
		began := time.Now()
		c := backfill{
			modules: func() []meta.Module {
				return []meta.Module{{Digest: meta.Digest(have)}, {Digest: meta.Digest(lost)}, {Digest: meta.Digest(away)}}
			},
			here: func(d journal.Digest) bool { return d == have },
			fetch: func(_ context.Context, d journal.Digest) error {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, d)
				if d == lost {
					lostAt = append(lostAt, time.Since(began))
					return errors.New("nobody has it")
				}
				return nil
			},
			full:  full.Load,
			sweep: func(context.Context) []journal.Digest { return nil },
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.run(ctx); close(done) }()
		time.Sleep(time.Minute)
		mu.Lock()
		if len(asked) > 0 {
			t.Errorf("fetched onto a full disk: %v", asked)
		}
		mu.Unlock()
		full.Store(false)
		time.Sleep(2 * time.Hour)
		cancel()
		<-done
		if n := len(slices.DeleteFunc(asked, func(d journal.Digest) bool { return d != away })); n != 1 {
			t.Errorf("what was away was fetched %d times", n)
		}
		if n := len(lostAt); n < 10 || n > 20 {
			t.Errorf("what is lost was asked for %d times in two hours: %v", n, lostAt)
		}
	})
}
