package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/loopback"
	"github.com/hostd/hostd/tests/support/rpctest"
)

func counter(id string) sharding.EntityID { return sharding.EntityID{Type: rpctest.Counter, ID: id} }

// eventually waits for a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("waited too long for %s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
	}
}

// TestStream checks that every command is answered once, with its own answer,
// and that the commands to one entity run in the order of Send.
func TestStream(t *testing.T) {
	w := rpctest.New()
	_, addr := serve(t, w)
	s := dial(t, addr).Stream(client.StreamOptions{})
	const entities, each = 5, 400
	var answers [entities * each]atomic.Int32
	for i := range each {
		for e := range entities {
			at := i*entities + e
			err := s.Send(t.Context(), add(fmt.Sprint("e", e), i), func(r client.Reply, err error) {
				answers[at].Add(1)
				if err != nil || r.Sequence != uint64(i+1) || r.NodeID != "n1" || string(r.Data) != fmt.Sprintf(`{"total":%d}`, i*(i+1)/2) {
					t.Errorf("entity %d, command %d: %+v, %v", e, i, r, err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range answers {
		if n := answers[i].Load(); n != 1 {
			t.Fatalf("command %d was answered %d times", i, n)
		}
	}
	for e := range entities {
		for i, payload := range w.Commands(counter(fmt.Sprint("e", e))) {
			if payload != fmt.Sprintf(`{"amount":%d}`, i) {
				t.Fatalf("entity %d ran %s as number %d", e, payload, i)
			}
		}
	}
	if err := s.Send(t.Context(), add("a", 1), func(client.Reply, error) { t.Error("answered after Close") }); !errors.Is(err, client.ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

func TestStreamErrors(t *testing.T) {
	w := rpctest.New()
	_, addr := serve(t, w)
	s := dial(t, addr).Stream(client.StreamOptions{})
	defer s.Close(t.Context())
	var rejected *client.RejectedError
	if _, err := s.Call(t.Context(), client.Command{EntityType: rpctest.Counter, EntityID: "a", Name: "reject"}); !errors.As(err, &rejected) || rejected.Code != "insufficient_funds" {
		t.Errorf("rejection: %v", err)
	}
	wrong := uint64(9)
	command := add("a", 1)
	command.ExpectedSequence = &wrong
	var mismatch *client.SequenceMismatchError
	if _, err := s.Call(t.Context(), command); !errors.As(err, &mismatch) || mismatch.Actual != 0 {
		t.Errorf("sequence mismatch: %v", err)
	}
	if _, err := s.Call(t.Context(), client.Command{EntityType: "nothing", EntityID: "a", Name: "b"}); !client.IsNotFound(err) {
		t.Errorf("unknown type: %v", err)
	}
	if _, err := s.Call(t.Context(), client.Command{}); client.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("nothing: %v", err)
	}
	if r, err := s.Call(t.Context(), add("a", 1)); err != nil || r.Sequence != 1 {
		t.Errorf("after the failures: %+v, %v", r, err)
	}
}

// TestStreamOutstanding checks that Send blocks while the maximum number of
// commands is outstanding.
func TestStreamOutstanding(t *testing.T) {
	const bound = 10
	w := rpctest.New()
	_, addr := serve(t, w)
	s := dial(t, addr).Stream(client.StreamOptions{Outstanding: bound})
	w.Pause()
	var answered atomic.Int32
	done := func(_ client.Reply, err error) {
		if err != nil {
			t.Error(err)
		}
		answered.Add(1)
	}
	for range bound {
		if err := s.Send(t.Context(), add("a", 1), done); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Send(ctx, add("a", 1), done); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more: %v", err)
	}
	w.Resume()
	if err := s.Send(t.Context(), add("a", 1), done); err != nil {
		t.Error(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := answered.Load(); n != bound+1 || w.Total("a") != bound+1 {
		t.Errorf("%d answers, total %d", n, w.Total("a"))
	}
	if _, most, _ := w.Queued(); most > bound {
		t.Errorf("%d were outstanding", most)
	}
}

// TestStreamResends repeatedly kills the server of a stream at random moments:
// every command must take effect once, in order, and be answered once.
func TestStreamResends(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := rpctest.New()
	defer w.Close()
	r, addr := start(t, w, loopback.Host()+":0", edge.Options{})
	c := dial(t, addr)
	s := c.Stream(client.StreamOptions{Outstanding: 64})

	const entities, each = 3, 2000
	var answered atomic.Int64
	var senders sync.WaitGroup
	for e := range entities {
		senders.Go(func() {
			for i := range each {
				err := s.Send(t.Context(), add(fmt.Sprint("e", e), i), func(r client.Reply, err error) {
					if err != nil || r.Sequence != uint64(i+1) {
						t.Errorf("entity %d, command %d: %+v, %v", e, i, r, err)
					}
					answered.Add(1)
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	restarts := 0
	for answered.Load() < entities*each && !t.Failed() {
		goal := answered.Load() + rng.Int64N(entities*each/8)
		eventually(t, "progress", func() bool { return answered.Load() >= min(goal, entities*each) || t.Failed() })
		r.stop(t, time.Duration(rng.IntN(2))*time.Millisecond)
		r, _ = start(t, w, addr, edge.Options{})
		restarts++
	}
	senders.Wait()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if restarts < 5 || answered.Load() != entities*each {
		t.Errorf("%d answers over %d restarts", answered.Load(), restarts)
	}
	for e := range entities {
		commands := w.Commands(counter(fmt.Sprint("e", e)))
		if len(commands) != each {
			t.Errorf("entity %d ran %d commands", e, len(commands))
		}
		for i, payload := range commands {
			if payload != fmt.Sprintf(`{"amount":%d}`, i) {
				t.Fatalf("entity %d ran %s as number %d", e, payload, i)
			}
		}
	}
	c.Close()
	r.stop(t, 5*time.Second)
}

// TestStreamGivesUp checks that commands that cannot be delivered fail
// eventually, with their outcome unknown, and that the stream continues when a
// node is back.
func TestStreamGivesUp(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	r, addr := start(t, w, loopback.Host()+":0", edge.Options{})
	r.stop(t, time.Second)
	c := dial(t, addr)
	s := c.Stream(client.StreamOptions{ResendFor: 50 * time.Millisecond})
	if _, err := s.Call(t.Context(), add("a", 1)); !client.IsUnavailable(err) {
		t.Errorf("without a node: %v", err)
	}
	r, _ = start(t, w, addr, edge.Options{})
	eventually(t, "the stream to work", func() bool {
		_, err := s.Call(t.Context(), add("b", 1))
		return err == nil
	})
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	c.Close()
	r.stop(t, 5*time.Second)
}

// TestStreamCloseIsBoundedByContext checks that Close does not wait longer than its context
// allows, and that the remaining commands are answered.
func TestStreamCloseIsBoundedByContext(t *testing.T) {
	w := rpctest.New()
	_, addr := serve(t, w)
	s := dial(t, addr).Stream(client.StreamOptions{})
	w.Pause()
	defer w.Resume()
	failed := make(chan error, 1)
	if err := s.Send(t.Context(), add("a", 1), func(_ client.Reply, err error) { failed <- err }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
	if err := <-failed; !client.OutcomeUnknown(err) {
		t.Errorf("the command: %v", err)
	}
}

// TestStreamFatal checks that a server that does not know the procedure ends
// the stream for good, so that nothing waits forever.
func TestStreamFatal(t *testing.T) {
	w := rpctest.New()
	_, addr := serve(t, w)
	s := dial(t, addr+"/elsewhere").Stream(client.StreamOptions{})
	if _, err := s.Call(t.Context(), add("a", 1)); err == nil {
		t.Error("a call succeeded")
	}
	eventually(t, "Send to fail", func() bool {
		return client.CodeOf(s.Send(t.Context(), add("a", 1), func(client.Reply, error) {})) == connect.CodeUnimplemented
	})
	s.Close(t.Context())
}

// TestClosedStreamLeavesNoGoroutine checks that a closed stream, used or not, leaves no
// goroutine.
func TestClosedStreamLeavesNoGoroutine(t *testing.T) {
	w := rpctest.New()
	_, addr := serve(t, w)
	c := dial(t, addr)
	if _, err := c.Send(t.Context(), add("a", 1)); err != nil { // connects
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	for i := range 20 {
		s := c.Stream(client.StreamOptions{})
		for range i {
			if _, err := s.Call(t.Context(), add("a", 1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}
