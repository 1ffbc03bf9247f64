package entity

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// queueRequests bounds the requests that wait for the executor.
const queueRequests = 1 << 16

// takeRequests bounds the requests that the executor takes before it looks at
// events again. Taking one costs about a microsecond.
const takeRequests = 2048

// executor is the goroutine that runs the entities of its shards. Its methods
// are safe for concurrent use and do not block, except Close.
type executor struct {
	core    *coreTurns
	opts    Options
	wake    chan struct{}
	stop    chan struct{}
	done    chan struct{}
	loaders *loaderPool
	costly  costlyLoads
	scans   context.Context
	endAll  context.CancelFunc // cancels scans

	callMarks    uint64 // source of marks for guest calls, always even; used only by the executor's goroutine
	current      atomic.Pointer[callSlot]
	turns        atomic.Uint64
	began        chan struct{}
	watchdogDone chan struct{} // closed when the watchdog has ended

	mu     sync.Mutex
	closed bool
	reqs   []*request.Request
	events []coreEvent

	stats struct {
		latest      atomic.Pointer[Stats]
		preemptions atomic.Uint64
	}
}

// newExecutor starts an executor. While the disk is full, commands are
// rejected and queries continue. The disk may be nil.
func newExecutor(opts Options, d disk) *executor {
	l := &executor{
		opts: opts.withDefaults(),
		wake: make(chan struct{}, 1),
		stop: make(chan struct{}),
		done: make(chan struct{}),

		began:        make(chan struct{}, 1),
		watchdogDone: make(chan struct{}),
	}
	l.core = newCoreTurns(l.opts, runner{l}, d, rand.Uint64())
	l.scans, l.endAll = context.WithCancel(context.Background())
	l.loaders = newLoaderPool(l.opts.Loaders)
	l.stats.latest.Store(&Stats{})
	l.current.Store(&callSlot{executor: l})
	go l.runWatchdog()
	go l.run(false)
	return l
}

// Submit queues requests in order; each is completed exactly once.
func (l *executor) Submit(reqs []*request.Request) {
	l.mu.Lock()
	if l.closed || len(l.reqs)+len(reqs) > queueRequests {
		err := request.ErrBusy
		if l.closed {
			err = request.ErrStopped
		}
		l.mu.Unlock()
		for _, r := range reqs {
			r.Result = request.Result{Err: err}
			r.Done.Complete(r)
		}
		return
	}
	now := l.opts.Now()
	for _, r := range reqs {
		r.Exec.Since = now
	}
	l.reqs = append(l.reqs, reqs...)
	l.mu.Unlock()
	l.signal()
}

// Waiting is the number of requests that wait for the executor's goroutine.
func (l *executor) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.reqs)
}

// IsBusy reports whether requests wait for the executor's goroutine.
func (l *executor) IsBusy() bool { return l.Waiting() > 0 }

// LeaderChanged reports an election in the shard, and whether this node won it.
func (l *executor) LeaderChanged(shard sharding.ShardID, term sharding.Term, self bool) {
	l.put(coreEvent{Kind: eventLeaderChanged, Shard: shard, Term: term, Self: self})
}

// appliedEntry is the apply result of one entry of a shard's log. Results
// arrive in log order.
type appliedEntry struct {
	Shard    sharding.ShardID
	Term     sharding.Term // term of the raft entry
	NoOp     bool          // the entry is the first of a new leader: all entries before it are applied
	Fence    sharding.Term
	Proposal uint64
	Index    uint64 // index of the raft entry
	Clock    int64  // the shard's log clock after the entry
	Revision uint64 // the revision of the shard's activations after the entry
	Err      error  // nil if the entry took effect
	// Proof is the checksum of the shard's rows after the entry, if replicas
	// compute one for it.
	Proof *journal.Proof
	// Owing reports whether the shard has paced work left for later entries.
	Owing bool
}

// NotifyApplied reports apply results.
func (l *executor) NotifyApplied(as []appliedEntry) {
	l.mu.Lock()
	for i := range as {
		a := &as[i]
		ev := coreEvent{Kind: eventProposalDone, Shard: a.Shard, Term: a.Fence, Number: a.Proposal, Clock: a.Clock, Revision: a.Revision, Err: a.Err, Index: a.Index, Proof: a.Proof, Owing: a.Owing}
		if a.NoOp {
			ev.Kind, ev.Term = eventTermStarted, a.Term
		}
		l.events = append(l.events, ev)
	}
	l.mu.Unlock()
	l.signal()
}

// ActivationsChanged reports that Options.ActivationRevision has risen.
func (l *executor) ActivationsChanged() { l.put(coreEvent{Kind: eventActivationsChanged}) }

// IdleTimesChanged reports that the settings of idle times or of suspended
// types have changed.
func (l *executor) IdleTimesChanged() { l.put(coreEvent{Kind: eventIdleTimesChanged}) }

// NotifyDropped reports that a proposal never entered the log, and why.
func (l *executor) NotifyDropped(shard sharding.ShardID, fence sharding.Term, proposal uint64, why error) {
	l.put(coreEvent{Kind: eventProposalDone, Shard: shard, Term: fence, Number: proposal, Err: notApplied(why)})
}

// Reopen reports that entries from outside the executor have changed the
// shard's state. clock is the shard's log clock.
func (l *executor) Reopen(shard sharding.ShardID, clock int64) {
	l.put(coreEvent{Kind: eventReopened, Shard: shard, Clock: clock})
}

// ReadConfirmed reports that this node led the shard after the ReadIndex round
// was requested.
func (l *executor) ReadConfirmed(shard sharding.ShardID, round uint64) {
	l.put(coreEvent{Kind: eventReadConfirmed, Shard: shard, Number: round})
}

// ReadFailed reports that a ReadIndex round could not be confirmed.
func (l *executor) ReadFailed(shard sharding.ShardID, round uint64) {
	l.put(coreEvent{Kind: eventReadFailed, Shard: shard, Number: round})
}

// Stats returns counters at most one turn old.
func (l *executor) Stats() Stats {
	st := *l.stats.latest.Load()
	st.Preemptions = l.stats.preemptions.Load()
	return st
}

// TypeStats returns the executor's counters by entity type.
func (l *executor) TypeStats() map[string]TypeStats { return l.core.TypeStats() }

// Close answers every waiting request and stops the executor. Proposals may
// still be committed, so their callers get an unknown outcome. Close waits for
// the goroutines, at most until ctx ends.
func (l *executor) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.stop)
	}
	l.mu.Unlock()
	for _, ended := range []chan struct{}{l.watchdogDone, l.done} {
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (l *executor) put(ev coreEvent) {
	l.mu.Lock()
	l.events = append(l.events, ev)
	l.mu.Unlock()
	l.signal()
}

func (l *executor) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run is the executor's loop. If a guest call runs long, run starts again on
// another goroutine with resumed set. The goroutine that ends the executor
// closes done.
func (l *executor) run(resumed bool) {
	if resumed {
		l.current.Store(&callSlot{executor: l})
		l.core.Resume(l.opts.Now())
		l.signal()
	}
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	var due time.Time // when the timer fires; zero if it is not set
	var reqs []*request.Request
	var events []coreEvent
	for {
		select {
		case <-l.stop:
			l.shutdown()
			close(l.done)
			return
		case <-timer.C:
			due = time.Time{}
			l.core.Tick(l.opts.Now())
		case <-l.wake:
		}
		l.turns.Add(1)
		select {
		case l.began <- struct{}{}:
		default:
		}
		for {
			clear(reqs)
			clear(events)
			l.mu.Lock()
			if len(l.reqs) <= takeRequests {
				reqs, l.reqs = l.reqs, reqs[:0]
			} else {
				reqs = append(reqs[:0], l.reqs[:takeRequests]...)
				l.reqs = slices.Delete(l.reqs, 0, takeRequests)
			}
			events, l.events = l.events, events[:0]
			l.mu.Unlock()
			if len(reqs) == 0 && len(events) == 0 {
				break
			}
			l.core.Take(l.opts.Now(), events, reqs)
		}
		due = l.arm(timer, due)
		l.publish()
	}
}

// arm sets the timer to the earliest due time and returns when it fires.
func (l *executor) arm(timer *time.Timer, due time.Time) time.Time {
	at, after := l.core.Next()
	if at.IsZero() || !due.IsZero() && !at.Before(due) {
		return due
	}
	timer.Reset(after)
	return at
}

func (l *executor) publish() {
	st := l.core.Stats()
	l.stats.latest.Store(&st)
}

func (l *executor) shutdown() {
	l.mu.Lock()
	reqs, events := l.reqs, l.events
	l.reqs, l.events = nil, nil
	l.mu.Unlock()
	l.core.Close(reqs)
	l.awaitCalls(events)
	l.publish()
	l.endAll()
	l.loaders.Close()
}

// callsEndTimeout bounds the wait for guest calls on shutdown. They have been
// interrupted, except calls that open an instance, which end when their fuel is
// spent.
const callsEndTimeout = 5 * time.Second

// awaitCalls waits for the detached guest calls, so that their guests are
// closed. events are the events received so far.
func (l *executor) awaitCalls(events []coreEvent) {
	late := time.NewTimer(callsEndTimeout)
	defer late.Stop()
	for away := l.core.TakeBack(events); away > 0; {
		select {
		case <-l.wake:
		case <-late.C:
			l.opts.Logger.Warn("guest calls did not return before the executor stopped", "guests", away)
			return
		}
		l.mu.Lock()
		events := l.events
		l.events = nil
		l.mu.Unlock()
		away = l.core.TakeBack(events)
	}
}

// runner is the executor from the core's point of view.
type runner struct{ l *executor }

func (r runner) Call(v *guestCall) bool { return r.l.runCall(v) }

// Start performs a reading on a loader goroutine.
func (r runner) Start(what reading) {
	l := r.l
	kind, costly := "", false
	reads, isLoad := what.(*load)
	if isLoad {
		kind, costly = reads.kind(), l.costly.has(reads.ID)
	}
	l.loaders.Do(kind, costly, func() {
		if l.scans.Err() != nil {
			return
		}
		if what.Do(l.scans, l.put); isLoad {
			l.costly.note(reads)
		}
	})
}
