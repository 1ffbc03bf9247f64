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

// AppliedSink is told what became of entries, in order per shard, from the
// applying goroutine. It must not block. The slice is its to keep.
type AppliedSink interface{ Applied([]Verdict) }

// ApplierOptions of an Applier. The zero value of a field is its default.
type ApplierOptions struct {
	// Sink is required.
	Sink AppliedSink
	// Fatal is called once, from a goroutine of the Applier, when the store
	// fails: nothing is applied afterwards and the process must end. Required.
	Fatal func(error)
	// FlushBytes and FlushInterval: a batch is written when either is reached.
	// Default 1 MiB and 20 ms.
	FlushBytes    int64
	FlushInterval time.Duration
	// FlushPatience is how many intervals a batch is left to grow that nobody
	// waits for: what changes again meanwhile is written once. Somebody waits
	// for the state of a shard that is being installed or taken away, and while
	// Awaited says so. Default 1.
	FlushPatience int
	// QueueBytes bounds what waits to be applied; Apply blocks above it. It is
	// the last resort: proposals are refused long before. Default 256 MiB.
	QueueBytes int64
	// Room says whether the disk has room for another batch and what follows
	// from it. Without it batches wait in memory, and at Close they are left to
	// the log. Default: there always is.
	Room func() bool
	// Awaited says whether somebody waits for batches: then they are written
	// after one interval, and without rests. Default: nobody does.
	Awaited func() bool
	// After makes the timers of the interval and of rests. Default time.After.
	After func(time.Duration) <-chan time.Time
	// Logger: default discarded.
	Logger *slog.Logger
}

const (
	// The writing goroutine rests restShare times as long as a part of a batch
	// took, which counts for restMost at most: others wait for a processor
	// meanwhile, and mostly nobody for the batch. It does not once restBehind
	// times FlushBytes are not in the store.
	restShare  = 2
	restMost   = 5 * time.Millisecond
	restBehind = 3
)

// roomInterval is how often a batch that waits for room on the disk looks for it.
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

// Validate joins all faults.
func (o ApplierOptions) Validate() error {
	var errs []error
	if o.Sink == nil || o.Fatal == nil {
		errs = append(errs, errors.New("sink and fatal are required"))
	}
	if o.FlushBytes < 0 || o.FlushInterval < 0 || o.FlushPatience < 0 || o.QueueBytes < 0 {
		errs = append(errs, errors.New("flush and queue bounds: want 0 or more"))
	}
	return errors.Join(errs...)
}

// Applier drives a Machine: one goroutine applies what Apply queued and makes
// batches, another writes one batch at a time.
//
//	Apply -> queue -> [applying] -> batch -> [writing] -> flushed -> [applying]
type Applier struct {
	m    *Machine
	opts ApplierOptions

	mu     sync.Mutex
	space  *sync.Cond // the queue has room, or no one reads it any more
	queue  []queued
	bytes  int64 // in the queue
	ended  bool
	err    error
	closed sync.Once

	backlog atomic.Int64 // bytes given to Apply and not applied
	flushes atomic.Uint64
	wake    chan struct{} // one slot: the queue is not empty
	stop    chan struct{}
	write   chan *Batch
	written chan error
	done    chan struct{} // both goroutines have ended
}

// queued is work that waits for the applying goroutine.
type queued struct {
	shard   sharding.ShardID
	entries []journal.Committed
	bytes   int64
	do      func() // instead of entries
}

// StartApplier starts the two goroutines; Close ends them. The Machine's
// applying methods are the Applier's from then on.
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

// Apply queues committed entries of a shard. The slice and the data become the
// Machine's; the data is never modified, and kept until it is in the store.
// After Close, or a failure, entries are dropped: they are in the log.
func (a *Applier) Apply(shard sharding.ShardID, entries []journal.Committed) {
	var n int64
	for i := range entries {
		n += int64(len(entries[i].Data)) + overlayBytes
	}
	a.put(queued{shard: shard, entries: entries, bytes: n})
}

// put queues work and says whether anybody will do it.
func (a *Applier) put(q queued) bool {
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

// Backlog is the bytes that were given to Apply and are not in the store.
func (a *Applier) Backlog() int64 { return a.backlog.Load() + a.m.Unflushed() + a.m.Waiting() }

// Flushes counts the batches written.
func (a *Applier) Flushes() uint64 { return a.flushes.Load() }

// Durable is Machine.Durable.
func (a *Applier) Durable(dst map[sharding.ShardID]uint64) (watermark uint64) {
	return a.m.Durable(dst)
}

// Close applies what is queued, writes it to the store and joins the
// goroutines. A snapshot that is not installed yet, with the entries that wait
// for it, is left to the next start. It returns the error that ended them, or ctx's.
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

// awaited reports that somebody waits for the next batch.
func (a *Applier) awaited() bool { return a.m.background.pending() || a.opts.Awaited() }

// rest lets others go on between two parts of a batch.
func (a *Applier) rest(took time.Duration) {
	if a.opts.Awaited() || a.m.Unflushed() > restBehind*a.opts.FlushBytes {
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
		looks    int // intervals that the next batch has grown for
		inFlight *Batch
		ready    = make(chan struct{})
	)
	close(ready)
	for {
		var idle chan struct{}
		if !closing && a.m.Working() {
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
			timer, due = nil, due || looks >= a.opts.FlushPatience || a.awaited()
		case err := <-a.written:
			if err != nil {
				a.fail(err)
				return
			}
			a.m.Flushed(inFlight)
			inFlight = nil
			a.flushes.Add(1)
		case <-stop:
			stop, closing = nil, true
		}
		empty := a.drain()
		if err := a.m.Failed(); err != nil {
			a.fail(err)
			return
		}
		if inFlight == nil && a.m.Pending() && (closing || due || a.m.Unflushed() >= a.opts.FlushBytes || a.m.background.full()) {
			switch {
			case a.opts.Room():
				inFlight = a.m.TakeBatch()
				inFlight.ease(a.rest)
				timer, due, looks = nil, false, 0
				a.write <- inFlight
			case closing:
				a.opts.Logger.Warn("the disk has no room: what is not in the store is left to the log", "bytes", a.m.Unflushed())
				return
			default:
				due, timer = true, a.opts.After(roomInterval)
			}
		}
		if timer == nil && !due && a.m.Pending() {
			timer = a.opts.After(a.opts.FlushInterval)
		}
		if closing && empty && inFlight == nil && !a.m.Pending() {
			return
		}
	}
}

// drain applies what was queued when it began and reports whether nothing
// came meanwhile.
func (a *Applier) drain() (empty bool) {
	a.mu.Lock()
	work := a.queue
	a.queue, a.bytes = nil, 0
	a.space.Broadcast()
	a.mu.Unlock()
	for i := range work {
		w := &work[i]
		var verdicts []Verdict
		if w.do != nil {
			w.do()
		} else {
			verdicts = a.m.Apply(w.shard, w.entries)
		}
		a.backlog.Add(-w.bytes)
		if a.m.Failed() != nil {
			return false
		}
		if len(verdicts) > 0 {
			a.opts.Sink.Applied(verdicts)
		}
		*w = queued{}
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
	a.opts.Logger.Error("the journal's store failed", "error", err)
	a.opts.Fatal(err)
}

// end makes Apply drop what comes from now on.
func (a *Applier) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.space.Broadcast()
}
