package entity

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// endless is a guest whose command "endless" runs until its deadline or an
// interrupt, like a call of the real engine.
type endless struct {
	*sleeper
	once        sync.Once
	interrupted chan struct{}
	open        *atomic.Int64 // number of open guests
	entered     chan struct{}
}

func (g *endless) Handle(h uint64, frames []byte, env Env) ([]byte, error) {
	var req abi.Request
	if err := abi.ParseRequest(&req, frames); err != nil {
		return nil, err
	}
	if string(req.Name) != "endless" {
		return g.sleeper.Handle(h, frames, env)
	}
	g.entered <- struct{}{}
	var deadline <-chan time.Time
	if !env.Deadline.IsZero() {
		deadline = time.After(time.Until(env.Deadline))
	}
	select {
	case <-deadline:
		return nil, request.ErrDeadline
	case <-g.interrupted:
		return nil, request.ErrStopped
	}
}

func (*endless) About(sharding.EntityID) {}
func (g *endless) Interrupt()            { g.once.Do(func() { close(g.interrupted) }) }

func (g *endless) Close() error {
	g.open.Add(-1)
	return nil
}

// endlessLane returns an executor of endless guests that leads shard 1.
func endlessLane(t *testing.T) (exec *executor, open *atomic.Int64, entered chan struct{}) {
	open, entered = new(atomic.Int64), make(chan struct{}, 16)
	log := &committer{in: make(chan appliedEntry, 1<<10), done: make(chan struct{}), records: map[sharding.EntityID][]journal.Record{}}
	typ := &Type{Name: "t", Instantiate: func(context.Context) (Guest, error) {
		open.Add(1)
		return &endless{
			sleeper: &sleeper{t: t, sums: map[uint64]int64{}, slept: new(atomic.Int64)}, interrupted: make(chan struct{}), open: open, entered: entered,
		}, nil
	}}
	exec = newExecutor(Options{Journal: log, Histories: log, Types: onlyType{typ}}, nil)
	log.exec = exec
	go log.run()
	t.Cleanup(func() { close(log.in); <-log.done })
	exec.LeaderChanged(1, 1, true)
	exec.NotifyApplied([]appliedEntry{{Shard: 1, Term: 1, NoOp: true}})
	for !exec.leads(1) {
		time.Sleep(time.Millisecond)
	}
	return exec, open, entered
}

func endlessRequest(id, name string, deadline time.Time, a *answers) *request.Request {
	a.wg.Add(1)
	return &request.Request{
		Entity: sharding.EntityID{Type: "t", ID: "e"}, Shard: 1, Name: name, Payload: []byte("1"), ID: journal.CommandID(id),
		ExpectedSequence: request.NoExpectation, Deadline: deadline, Done: a,
	}
}

// TestDeadlineIsNotAFault checks that calls ended at their deadline have no
// effect, and never quarantine their entity.
func TestDeadlineIsNotAFault(t *testing.T) {
	exec, open, _ := endlessLane(t)
	for i := range 5 {
		var a answers
		exec.Submit([]*request.Request{endlessRequest(string(rune('a'+i)), "endless", time.Now().Add(5*time.Millisecond), &a)})
		a.wg.Wait()
		if err := a.got[0].Result.Err; !errors.Is(err, request.ErrDeadline) {
			t.Fatalf("call %d ended with %v", i, err)
		}
	}
	var a answers
	exec.Submit([]*request.Request{endlessRequest("z", "add", time.Time{}, &a)})
	a.wg.Wait()
	if r := a.got[0].Result; r.Err != nil || r.Sequence != 1 || string(r.Payload) != "1" {
		t.Errorf("the next command got %+v", r)
	}
	if n := exec.Stats().Faults; n != 0 {
		t.Errorf("%d faults are counted", n)
	}
	if err := exec.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := open.Load(); n != 0 {
		t.Errorf("%d guests are open", n)
	}
}

// TestCloseInterruptsGuestCalls checks that Close ends detached guest calls,
// answers their callers and closes their guests.
func TestCloseInterruptsGuestCalls(t *testing.T) {
	exec, open, entered := endlessLane(t)
	var first, a answers
	exec.Submit([]*request.Request{endlessRequest("0", "add", time.Time{}, &first)})
	first.wg.Wait()
	exec.Submit([]*request.Request{endlessRequest("1", "endless", time.Time{}, &a)})
	<-entered
	for exec.Stats().Preemptions == 0 {
		time.Sleep(time.Millisecond)
	}
	exec.leads(1) // returns only after the executor has continued without the call
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := exec.Close(ctx); err != nil {
		t.Fatal(err)
	}
	a.wg.Wait()
	if err := a.got[0].Result.Err; err == nil {
		t.Error("the endless call succeeded")
	}
	if n := open.Load(); n != 0 {
		t.Errorf("%d guests are open", n)
	}
}

// TestCloseClosesGuestsOfReturnedCalls checks that Close closes the guest of a
// call that has returned before the executor looked at the event.
func TestCloseClosesGuestsOfReturnedCalls(t *testing.T) {
	exec, open, entered := endlessLane(t)
	var first, a answers
	exec.Submit([]*request.Request{endlessRequest("0", "add", time.Time{}, &first)})
	first.wg.Wait()
	exec.Submit([]*request.Request{endlessRequest("1", "endless", time.Now().Add(2*time.Second), &a)})
	<-entered
	for exec.Stats().Preemptions == 0 {
		time.Sleep(time.Millisecond)
	}
	// One turn of the executor lasts until the guest call has returned.
	busy, release := make(chan struct{}), make(chan struct{})
	exec.put(coreEvent{Kind: eventAsked, Ask: func() { close(busy); <-release }})
	<-busy
	var returned []coreEvent
	for len(returned) == 0 {
		time.Sleep(time.Millisecond)
		exec.mu.Lock()
		returned, exec.events = exec.events, nil
		exec.mu.Unlock()
	}
	close(release)
	for exec.leads(1); len(exec.wake) > 0; {
		time.Sleep(time.Millisecond)
	}
	// The event of the call is queued when the executor is closed.
	exec.mu.Lock()
	exec.events = returned
	exec.closed = true
	close(exec.stop)
	exec.mu.Unlock()
	if err := exec.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.wg.Wait()
	if n := open.Load(); n != 0 {
		t.Errorf("%d guests are open", n)
	}
}
