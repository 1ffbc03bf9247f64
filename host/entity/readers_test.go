package entity

import (
	"sync/atomic"
	"testing"
)

// TestReadersAreBounded asks for more than can be done at once: everything is
// done, at most so many at a time, and close waits for it.
func TestReadersAreBounded(t *testing.T) {
	const most, jobs = 3, 50
	var r readers
	r.start(most)
	var working, done atomic.Int32
	begun, hold := make(chan struct{}, jobs), make(chan struct{})
	for range jobs {
		r.do(func() {
			if n := working.Add(1); n > most {
				t.Errorf("%d at work, want at most %d", n, most)
			}
			begun <- struct{}{}
			<-hold
			working.Add(-1)
			done.Add(1)
		})
	}
	for range most { // so many are at work together
		<-begun
	}
	if n := working.Load(); n != most {
		t.Errorf("%d at work, want %d", n, most)
	}
	close(hold)
	r.close()
	if n := done.Load(); n != jobs {
		t.Errorf("%d were done, want %d", n, jobs)
	}
}

// TestReadersStay has jobs done one after the other: one goroutine does them.
func TestReadersStay(t *testing.T) {
	var r readers
	r.start(8)
	defer r.close()
	for range 20 {
		done := make(chan struct{})
		r.do(func() { close(done) })
		<-done
		for idle := 0; idle == 0; { // until it waits for the next
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
