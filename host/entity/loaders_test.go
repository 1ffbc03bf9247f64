package entity

import (
	"sync/atomic"
	"testing"
)

// TestLoadersAreBounded queues more jobs than there are loaders. All jobs must
// be done, the number of concurrent jobs must stay within the limit, and Close
// must wait for them.
func TestLoadersAreBounded(t *testing.T) {
	const most, jobs = 3, 50 // less than 4, so that one kind may have all goroutines
	r := newLoaderPool(most)
	var working, done atomic.Int32
	begun, release := make(chan struct{}, jobs), make(chan struct{})
	for range jobs {
		r.Do("", false, func() {
			if n := working.Add(1); n > most {
				t.Errorf("%d at work, want at most %d", n, most)
			}
			begun <- struct{}{}
			<-release
			working.Add(-1)
			done.Add(1)
		})
	}
	for range most { // wait until this many jobs run concurrently
		<-begun
	}
	if n := working.Load(); n != most {
		t.Errorf("%d at work, want %d", n, most)
	}
	close(release)
	r.Close()
	if n := done.Load(); n != jobs {
		t.Errorf("%d were done, want %d", n, jobs)
	}
}

// TestIdleLoaderIsReused checks that one goroutine does all jobs that are queued one
// after another.
func TestIdleLoaderIsReused(t *testing.T) {
	r := newLoaderPool(8)
	defer r.Close()
	for range 20 {
		done := make(chan struct{})
		r.Do("", false, func() { close(done) })
		<-done
		for idle := 0; idle == 0; { // wait until a goroutine waits for the next job
			r.mu.Lock()
			idle = r.idle
			r.mu.Unlock()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started != 1 {
		t.Errorf("%d goroutines were started, want 1", r.started)
	}
}

// TestLoadersAreShared checks that neither the jobs of one kind nor costly jobs
// keep all goroutines busy, and that all jobs are done in the end.
func TestLoadersAreShared(t *testing.T) {
	const most, jobs = 8, 40
	for name, costly := range map[string]bool{"jobs of a kind": false, "costly jobs": true} {
		p := newLoaderPool(most)
		var done atomic.Int32
		release := make(chan struct{})
		for range jobs {
			p.Do("large", costly, func() {
				<-release
				done.Add(1)
			})
		}
		// Jobs of other kinds do not wait for the blocked jobs.
		for _, kind := range []string{"small", "smaller"} {
			for range jobs {
				ran := make(chan struct{})
				p.Do(kind, false, func() { close(ran) })
				<-ran
			}
		}
		ran := make(chan struct{})
		if costly { // quick jobs of the same kind do not wait for costly jobs either
			p.Do("large", false, func() { close(ran) })
			<-ran
		}
		close(release)
		p.Close()
		if n := done.Load(); n != jobs {
			t.Errorf("%s: %d were done, want %d", name, n, jobs)
		}
		if len(p.kinds) > 0 || len(p.turns) > 0 || p.costly != 0 {
			t.Errorf("%s: %d kinds are left, %d with waiting jobs, %d costly jobs", name, len(p.kinds), len(p.turns), p.costly)
		}
	}
}
