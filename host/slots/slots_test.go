package slots

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
)

// waits waits until n calls wait for a place.
func (s *Slots) waits(n int) {
	for {
		s.mu.Lock()
		waiting := 0
		for _, l := range s.of {
			waiting += len(l.waiting)
		}
		s.mu.Unlock()
		if waiting == n {
			return
		}
		runtime.Gosched()
	}
}

// TestCallersTakeTurns checks that a caller with many waiting calls delays a
// call of another caller by only one of its calls.
func TestCallersTakeTurns(t *testing.T) {
	s := New(1)
	leave, err := s.Enter(t.Context(), "many")
	if err != nil {
		t.Fatal(err)
	}
	const calls = 20
	var all sync.WaitGroup
	order := make(chan string, calls+1)
	call := func(who string) {
		all.Go(func() {
			leave, err := s.Enter(t.Context(), who)
			if err != nil {
				t.Error(err)
				return
			}
			order <- who
			leave()
		})
	}
	for n := range calls {
		call("many")
		s.waits(n + 1)
	}
	call("few")
	s.waits(calls + 1)
	leave()
	all.Wait()
	for n := range calls + 1 {
		if who := <-order; (who == "few") != (n == 1) {
			t.Fatalf("call %d is of %q", n, who)
		}
	}
	if s.free != 1 || len(s.of)+len(s.turns) > 0 {
		t.Errorf("%d places are free, %d callers wait", s.free, len(s.turns))
	}
}

// TestCallsThatEndLeaveTheLine checks that a call whose context ends keeps
// neither a place nor a turn, even if it gets the place at that moment.
func TestCallsThatEndLeaveTheLine(t *testing.T) {
	s := New(1)
	for range 200 {
		leave, err := s.Enter(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := s.TryEnter(); ok {
			t.Fatal("two calls have one place")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			leave, err := s.Enter(ctx, "b")
			if err == nil {
				leave()
			}
			ended <- err
		}()
		s.waits(1)
		go cancel()
		leave()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		cancel()
	}
	if s.free != 1 || len(s.of)+len(s.turns) > 0 {
		t.Errorf("%d places are free, %d callers wait", s.free, len(s.turns))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Enter(ended, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that has ended: %v", err)
	}
	if leave, ok := s.TryEnter(); !ok {
		t.Error("the place is not free")
	} else {
		leave()
	}
}
