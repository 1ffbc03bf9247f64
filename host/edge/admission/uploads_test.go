package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/host/request"
)

// TestUploadsTakeTurns: an address has at most one upload in progress, and
// all addresses together have at most the limit. A new address is next after
// busy uploaders, however many of their uploads wait. An upload beyond the
// limits, or one that waits in vain, is rejected and takes no turn.
func TestUploadsTakeTurns(t *testing.T) {
	u := &Uploads{most: 2}
	type call struct {
		leave func()
		err   error
	}
	ask := func(from string) chan call {
		got := make(chan call, 1)
		u.mu.Lock()
		before := len(u.waiting) + len(u.under)
		u.mu.Unlock()
		go func() {
			leave, err := u.enter(t.Context(), from)
			got <- call{leave, err}
		}()
		for len(got) == 0 { // until it has its turn or waits
			u.mu.Lock()
			there := len(u.waiting)+len(u.under) > before
			u.mu.Unlock()
			if there {
				break
			}
		}
		return got
	}
	begins := func(who string, c chan call) func() {
		t.Helper()
		got := <-c
		if got.err != nil {
			t.Fatalf("%s: %v", who, got.err)
		}
		return got.leave
	}
	waits := func(who string, c chan call) {
		t.Helper()
		if len(c) > 0 {
			t.Fatalf("%s does not wait", who)
		}
	}
	a, again := begins("a", ask("a")), ask("a")
	if len(u.waiting) != 1 {
		t.Fatal("two of an address go on")
	}
	b := begins("b", ask("b"))
	more := []chan call{again, ask("b")}
	for len(more) < 2*maxWaitingUploadsOf {
		more = append(more, ask("a"), ask("b"))
	}
	if got := <-ask("a"); !errors.Is(got.err, request.ErrOverloaded) {
		t.Errorf("one more than may wait: %v", got.err)
	}
	c, d := ask("c"), ask("d")
	waits("c", c)
	a()
	leaveC := begins("c, beside those of a that have waited longer", c)
	waits("a", more[0])
	waits("d", d)
	b()
	leaveD := begins("d", d)
	waits("b", more[1])
	leaveC()
	leaveA := begins("a again", more[0])
	waits("a, twice", more[2])
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := u.enter(ended, "e"); !errors.Is(err, request.ErrOverloaded) {
		t.Errorf("one that waits no longer: %v", err)
	}
	leaveD()
	leaveB := begins("b again", more[1])
	leaveA()
	leaveB()
	for _, next := range more[2:] {
		begins("one that waited", next)()
	}
	if len(u.waiting) != 0 || len(u.under) != 0 {
		t.Errorf("%d wait, %v go on", len(u.waiting), u.under)
	}
}

// TestUploadTurnsAreReleased: concurrent uploads that arrive, time out and
// leave release all their turns.
func TestUploadTurnsAreReleased(t *testing.T) {
	u := &Uploads{most: 2}
	done := make(chan struct{})
	const callers = 12
	for i := range callers {
		go func() {
			defer func() { done <- struct{}{} }()
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(3) == 0 {
					go cancel()
				}
				if leave, err := u.enter(ctx, fmt.Sprint(i%5)); err == nil {
					u.mu.Lock()
					if n := len(u.under); n > 2 || n == 0 {
						t.Errorf("%d go on", n)
					}
					u.mu.Unlock()
					leave()
				}
				cancel()
			}
		}()
	}
	for range callers {
		<-done
	}
	if len(u.waiting) != 0 || len(u.under) != 0 {
		t.Errorf("%d wait, %v go on", len(u.waiting), u.under)
	}
}
