package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// AppliedSink receives the results of applied entries, in order per shard, from
// the applying goroutine. It must not block. It may keep the slice.
type AppliedSink interface{ OnApplied([]ApplyResult) }

// ApplierOptions configure an Applier. Zero fields get the default.
type ApplierOptions struct {
	// Sink is required.
	Sink AppliedSink
	// Fatal is called once, from a goroutine of the Applier, if the store
	// fails. Nothing is applied afterwards and the process must end. Required.
	Fatal func(error)
	// A batch is written when it reaches FlushBytes or is FlushInterval old.
	// Defaults: 1 MiB and 20 ms.
	FlushBytes    int64
	FlushInterval time.Duration
	// FlushPatience is the number of intervals for which a batch may grow if no
	// one is waiting for it. A row that changes several times in these
	// intervals is then written only once. Someone is waiting if the batch
	// contains part of a shard that is being installed or deleted, or if
	// Awaited returns true. Default 1.
	FlushPatience int
	// QueueBytes limits the queue; if it is full, Apply blocks. This is a last
	// resort, because proposals are rejected long before. Default 256 MiB.
	QueueBytes int64
	// Room reports whether the disk has room for another batch and its
	// consequences. If it does not, batches wait in memory, and Close leaves
	// them to the log. By default there always is room.
	Room func() bool
	// Awaited reports whether someone is waiting for batches. They are then
	// written after one interval and without pauses. By default nobody is
	// waiting.
	Awaited func() bool
	// After creates the timers for intervals and pauses. Default time.After.
	After func(time.Duration) <-chan time.Time
	// Logger receives messages for operators. By default they are discarded.
	Logger *slog.Logger
}

const (
	// After each part of a batch, the writing goroutine pauses for restShare
	// times the duration of the part, counting at most restMost of that
	// duration. The pauses give the processor to other goroutines, because
	// usually no one is waiting for the batch. The goroutine does not pause if
	// the memtable is larger than restBehind times FlushBytes.
	restShare  = 2
	restMost   = 5 * time.Millisecond
	restBehind = 3
)

// roomInterval is how often to check again for disk space.
const roomInterval = 100 * time.Millisecond

func (o ApplierOptions) withDefaults() ApplierOptions {
	if o.FlushBytes == 0 {
		o.FlushBytes = 1 << 20
	}
	if o.FlushInterval == 0 {
		o.FlushInterval = 20 * time.Millisecond
	}
	if o.FlushPatience == 0 {
		o.FlushPatience = 1
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = 256 << 20
	}
	if o.Room == nil {
		o.Room = func() bool { return true }
	}
	if o.Awaited == nil {
		o.Awaited = func() bool { return false }
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate returns all errors in the options, joined.
func (o ApplierOptions) Validate() error {
	var errs []error
	if o.Sink == nil || o.Fatal == nil {
		errs = append(errs, errors.New("sink and fatal are required"))
	}
	if o.FlushBytes < 0 || o.FlushInterval < 0 || o.FlushPatience < 0 || o.QueueBytes < 0 {
		errs = append(errs, errors.New("flush and queue limits must not be negative"))
	}
	return errors.Join(errs...)
}

// Applier drives a Machine: one goroutine applies queued entries and builds
// batches, another writes one batch at a time to the store.
//
//	           full: block                      one in flight
//	Apply ──▶ queue ──▶ [applying] ──▶ batch ──▶ [writing] ──▶ store
//	                        ▲                        │
//	                        └──────── written ───────┘
//
// Problem: applying must keep up with the log and be visible to readers
// immediately, while writing to the store needs milliseconds and must not delay
// it. Rows that change often (an entity's row, counters) should not be written
// for every entry.
//
// Approach: applying only changes the memtable. When it has grown enough or is
// old enough, the applying goroutine takes the changes as a Batch, which is
// immutable from then on, and hands it to the writing goroutine. New entries
// continue to change the memtable meanwhile. Only one batch is in flight, so a
// slow store leads to larger batches instead of more of them. A batch waits in
// these states:
//
//	empty ──entry──▶ growing ──interval, size, awaited──▶ due ──room──▶ in flight
//	  ▲                                                    │ ▲             │
//	  │                                               no room: retry       │
//	  └──────────────────────────── written ───────────────────────────────┘
//
// Invariants: only the applying goroutine calls the Machine's applying methods.
// A batch contains complete entries only, and batches reach the store in order,
// so after a crash the store is the state after some batch, and the log has the
// rest. A log is only truncated up to the index that Durable returned.
//
// Rejected: writing each entry to the store as it is applied (write
// amplification, and applying waits for the disk), and one writer per shard
// (batches of different shards would have to share the store's versions).
//
//	Apply -> queue -> [applying] -> batch -> [writing] -> flushed -> [applying]
type Applier struct {
	m    *Machine
	opts ApplierOptions

	mu     sync.Mutex
	space  *sync.Cond // signaled when the queue has room or is no longer read
	queue  []queuedWork
	bytes  int64 // in the queue
	ended  bool
	err    error
	closed sync.Once

	backlog atomic.Int64 // bytes passed to Apply and not applied yet
	flushes atomic.Uint64
	wake    chan struct{} // one slot: the queue is not empty
	stop    chan struct{}
	write   chan *Batch
	written chan error
	done    chan struct{} // both goroutines have ended
}

// queuedWork is work for the applying goroutine.
type queuedWork struct {
	shard   sharding.ShardID
	entries []journal.Committed
	bytes   int64
	do      func() // work to do instead of applying entries
}

// StartApplier starts the two goroutines; Close ends them. From then on, only
// the Applier may call the Machine's applying methods.
func StartApplier(m *Machine, opts ApplierOptions) (*Applier, error) {
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("applier options: %w", err)
	}
	a := &Applier{
		m: m, opts: opts.withDefaults(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
		write: make(chan *Batch), written: make(chan error, 1), done: make(chan struct{}),
	}
	a.space = sync.NewCond(&a.mu)
	var both sync.WaitGroup
	both.Go(a.run)
	both.Go(a.writer)
	go func() {
		both.Wait()
		close(a.done)
	}()
	return a, nil
}

// Apply queues committed entries of a shard. The Machine takes ownership of the
// slice and the data, which is never modified and is retained until it is in
// the store. After Close or a failure, entries are dropped, because they are in
// the log.
func (a *Applier) Apply(shard sharding.ShardID, entries []journal.Committed) {
	var n int64
	for i := range entries {
		n += int64(len(entries[i].Data)) + memtableRecordBytes
	}
	a.enqueue(queuedWork{shard: shard, entries: entries, bytes: n})
}

// enqueue queues work and reports whether it will be done.
func (a *Applier) enqueue(q queuedWork) bool {
	a.mu.Lock()
	for a.bytes > a.opts.QueueBytes && !a.ended {
		a.space.Wait()
	}
	if a.ended {
		a.mu.Unlock()
		return false
	}
	a.queue = append(a.queue, q)
	a.bytes += q.bytes
	a.mu.Unlock()
	a.backlog.Add(q.bytes)
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return true
}

// Backlog returns the bytes that were passed to Apply and are not in the store
// yet.
func (a *Applier) Backlog() int64 { return a.backlog.Load() + a.m.UnflushedBytes() + a.m.Waiting() }

// Flushes returns the number of batches written.
func (a *Applier) Flushes() uint64 { return a.flushes.Load() }

// Durable calls Machine.Durable.
func (a *Applier) Durable(dst map[sharding.ShardID]uint64) (watermark uint64) {
	return a.m.Durable(dst)
}

// Close applies the queue, writes everything to the store and waits for the
// goroutines. It leaves a snapshot that is not installed yet, and the entries
// that wait for the snapshot, to the next process. Close returns the error that
// ended the goroutines, or the error of ctx.
func (a *Applier) Close(ctx context.Context) error {
	a.closed.Do(func() { close(a.stop) })
	select {
	case <-a.done:
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.err
	case <-ctx.Done():
		return fmt.Errorf("close applier: %w", ctx.Err())
	}
}

func (a *Applier) writer() {
	for b := range a.write {
		a.written <- b.WriteTo(a.m.st)
	}
}

// isAwaited reports whether someone is waiting for the next batch.
func (a *Applier) isAwaited() bool { return a.m.background.pending() || a.opts.Awaited() }

// pause lets other goroutines run between two parts of a batch.
func (a *Applier) pause(took time.Duration) {
	if a.opts.Awaited() || a.m.UnflushedBytes() > restBehind*a.opts.FlushBytes {
		return
	}
	select {
	case <-a.opts.After(restShare * min(took, restMost)):
	case <-a.stop:
	}
}

func (a *Applier) run() {
	defer close(a.write)
	defer a.m.background.close()
	defer a.end()
	var (
		stop     = a.stop
		timer    <-chan time.Time
		closing  bool
		due      bool
		looks    int // number of intervals for which the next batch has been growing
		inFlight *Batch
		ready    = make(chan struct{})
	)
	close(ready)
	for {
		var idle chan struct{}
		if !closing && a.m.HasWork() {
			idle = ready
		}
		select {
		case <-idle:
			a.work()
		case <-a.m.suspects.met:
			a.m.stopSuspects()
		case <-a.wake:
		case <-timer:
			looks++
			timer, due = nil, due || looks >= a.opts.FlushPatience || a.isAwaited()
		case err := <-a.written:
			if err != nil {
				a.fail(err)
				return
			}
			a.m.MarkFlushed(inFlight)
			inFlight = nil
			a.flushes.Add(1)
		case <-stop:
			stop, closing = nil, true
		}
		empty := a.drain()
		if err := a.m.Err(); err != nil {
			a.fail(err)
			return
		}
		if inFlight == nil && a.m.HasPending() && (closing || due || a.m.UnflushedBytes() >= a.opts.FlushBytes || a.m.background.full()) {
			switch {
			case a.opts.Room():
				inFlight = a.m.TakeBatch()
				inFlight.setPause(a.pause)
				timer, due, looks = nil, false, 0
				a.write <- inFlight
			case closing:
				a.opts.Logger.Warn("disk full: unflushed entries stay in the log", "bytes", a.m.UnflushedBytes())
				return
			default:
				due, timer = true, a.opts.After(roomInterval)
			}
		}
		if timer == nil && !due && a.m.HasPending() {
			timer = a.opts.After(a.opts.FlushInterval)
		}
		if closing && empty && inFlight == nil && !a.m.HasPending() {
			return
		}
	}
}

// drain applies everything that was queued when it started, and reports whether the queue
// is empty now.
func (a *Applier) drain() (empty bool) {
	a.mu.Lock()
	work := a.queue
	a.queue, a.bytes = nil, 0
	a.space.Broadcast()
	a.mu.Unlock()
	for i := range work {
		w := &work[i]
		var verdicts []ApplyResult
		if w.do != nil {
			w.do()
		} else {
			verdicts = a.m.Apply(w.shard, w.entries)
		}
		a.backlog.Add(-w.bytes)
		if a.m.Err() != nil {
			return false
		}
		if len(verdicts) > 0 {
			a.opts.Sink.OnApplied(verdicts)
		}
		*w = queuedWork{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queue == nil {
		a.queue = work[:0]
	}
	return len(a.queue) == 0
}

func (a *Applier) fail(err error) {
	a.mu.Lock()
	a.err = err
	a.mu.Unlock()
	a.opts.Logger.Error("the journal store failed", "error", err)
	a.opts.Fatal(err)
}

// end makes Apply drop entries from now on.
func (a *Applier) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.space.Broadcast()
}
