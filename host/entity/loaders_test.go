package entity

import (
	"sync/atomic"
	"testing"
)

// TestLoadersAreBounded queues more jobs than there are loaders: all are done,
// within the limit of concurrency, and Close waits for them.
func TestLoadersAreBounded(t *testing.T) {
	const most, jobs = 3, 50
	r := newLoaderPool(most)
	var working, done atomic.Int32
	begun, release := make(chan struct{}, jobs), make(chan struct{})
	for range jobs {
		r.Do(func() {
			if n := working.Add(1); n > most {
				t.Errorf("%d at work, want at most %d", n, most)
			}
			begun <- struct{}{}
			<-release
			working.Add(-1)
			done.Add(1)
		})
	}
	for range most { // wait until this many run concurrently
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
		r.Do(func() { close(done) })
		<-done
		for idle := 0; idle == 0; { // until it waits for the next job
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
