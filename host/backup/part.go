// Package backup exports the entities of a cluster, and imports them into
// another cluster. Every node has a Part: it freezes the node's executors,
// holds cuts of the shards that the node leads, and proposes chunks of an
// import to them. Service runs on the node that a client calls: it takes
// consistent cuts of all shards, or distributes an archive to the shards,
// together with the cluster's modules, their activations and the settings.
// The package reads and writes no files, and starts no goroutine that
// outlives a call.
package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// log accepts proposals and ReadIndex requests. Its methods don't block; the
// results are passed to methods of Part.
type log interface {
	Propose(shard sharding.ShardID, fence sharding.Term, proposal uint64, data []byte) error
	ReadIndex(shard sharding.ShardID, token uint64) error
}

// leads knows which shards this node leads.
type leads interface {
	// Lead returns the term in which this node leads a shard, and whether the
	// node serves the shard.
	Lead(shard sharding.ShardID) (term sharding.Term, serves bool)
}

// PartOptions configures a Part. All fields except Clock and Logger are
// required.
type PartOptions struct {
	Log     log
	Machine *eventlog.Machine
	Leads   leads
	Clock   func() time.Time // nil means time.Now
	Logger  *slog.Logger     // nil discards
}

// foreign is set in the numbers of proposals and reads that do not belong to an
// executor. Executors use smaller numbers.
const foreign = uint64(1) << 63

const (
	// maxFreeze bounds how long executors are frozen at a time.
	maxFreeze = 10 * time.Second
	// cutsLast is how long cuts are held without being read. Cuts expire because
	// the store has to keep old versions for them.
	cutsLast = 10 * time.Minute
	// storedPoll is the interval of polling whether the store has caught up
	// with the applied entries.
	storedPoll = 10 * time.Millisecond
	// maxExports bounds the number of concurrent exports.
	maxExports = 4
)

// Errors of a Part.
var (
	// errTooMany means that the maximum number of exports is running.
	errTooMany = errors.New("too many exports are running; retry when one has ended")
	// errUnknownCut means that the cut is no longer held. The export has to be
	// restarted.
	errUnknownCut = errors.New("the shard's state for the export was released; start the export again")
	// errUnknownOutcome means that the chunk may or may not take effect. The
	// progress of the import shows which.
	errUnknownOutcome = errors.New("the outcome of a chunk is unknown")
)

// Part is one node's part in exports and imports. It is safe for concurrent
// use.
type Part struct {
	opts   PartOptions
	frozen atomic.Int64 // Unix time in ns until which executors are frozen; 0: not frozen
	next   atomic.Uint64

	mu      sync.Mutex
	waiting map[uint64]chan outcome // by number of the proposal or token of the read
	exports map[string]*export
	closed  bool
}

// export holds the cuts of one export on this node.
type export struct {
	cuts  map[sharding.ShardID]*eventlog.ShardExport
	timer *time.Timer
}

// outcome is the result of a proposal or ReadIndex of this Part.
type outcome struct {
	index uint64
	err   error
}

// NewPart returns a Part.
func NewPart(opts PartOptions) *Part {
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Part{opts: opts, waiting: make(map[uint64]chan outcome), exports: make(map[string]*export)}
}

// ExecutorsFrozen reports whether executors must not accept new commands. It is
// called for every command.
func (p *Part) ExecutorsFrozen() bool {
	until := p.frozen.Load()
	return until != 0 && p.opts.Clock().UnixNano() < until
}

// FreezeExecutors stops the executors from taking new commands for d, but at most
// maxFreeze.
func (p *Part) FreezeExecutors(d time.Duration) {
	p.frozen.Store(p.opts.Clock().Add(min(d, maxFreeze)).UnixNano())
}

// Close releases all cuts and makes waiting calls fail.
func (p *Part) Close() {
	p.mu.Lock()
	p.closed = true
	for name := range p.exports {
		p.drop(name)
	}
	for number, ch := range p.waiting {
		ch <- outcome{err: errUnknownOutcome}
		delete(p.waiting, number)
	}
	p.mu.Unlock()
}

// Release unfreezes the executors and, if cuts is set, releases the cuts of the
// export.
func (p *Part) Release(name string, cuts bool) {
	p.frozen.Store(0)
	if cuts {
		p.mu.Lock()
		p.drop(name)
		p.mu.Unlock()
	}
}

// drop releases the cuts of an export. The lock must be held.
func (p *Part) drop(name string) {
	e := p.exports[name]
	if e == nil {
		return
	}
	delete(p.exports, name)
	e.timer.Stop()
	for _, c := range e.cuts {
		c.Close()
	}
}

// expect reserves a number and returns the channel for its outcome.
func (p *Part) expect() (number uint64, ch chan outcome, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, nil, errUnknownOutcome
	}
	number, ch = foreign|p.next.Add(1), make(chan outcome, 1)
	p.waiting[number] = ch
	return number, ch, nil
}

func (p *Part) deliverOutcome(number uint64, o outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ch := p.waiting[number]; ch != nil {
		delete(p.waiting, number)
		ch <- o
	}
}

func (p *Part) await(ctx context.Context, number uint64, ch chan outcome) outcome {
	select {
	case o := <-ch:
		return o
	case <-ctx.Done():
		p.deliverOutcome(number, outcome{})
		return outcome{err: ctx.Err()}
	}
}

// OnApplied must be called with the apply result of each entry whose proposal
// number has the bit Foreign, which means that no executor proposed it.
func (p *Part) OnApplied(v *eventlog.ApplyResult) {
	p.deliverOutcome(v.Proposal, outcome{index: v.Index, err: v.Err})
}

// OnDropped must be called if a proposal whose number has the bit Foreign never
// entered the log.
func (p *Part) OnDropped(proposal uint64, err error) {
	if err == nil {
		err = errors.New("dropped")
	}
	p.deliverOutcome(proposal, outcome{err: err})
}

// ReadConfirmed must be called for each confirmed read whose token has the bit
// Foreign.
func (p *Part) ReadConfirmed(token, index uint64) { p.deliverOutcome(token, outcome{index: index}) }

// ReadFailed must be called for each failed read whose token has the bit
// Foreign.
func (p *Part) ReadFailed(token uint64, err error) {
	if err == nil {
		err = errors.New("ReadIndex was not confirmed")
	}
	p.deliverOutcome(token, outcome{err: err})
}

// confirm returns the commit index of a shard that this node leads, by
// ReadIndex.
func (p *Part) confirm(ctx context.Context, shard sharding.ShardID) (uint64, error) {
	if _, serves := p.opts.Leads.Lead(shard); !serves {
		return 0, &sharding.NotLeaderError{Shard: shard}
	}
	number, ch, err := p.expect()
	if err != nil {
		return 0, err
	}
	if err := p.opts.Log.ReadIndex(shard, number); err != nil {
		p.deliverOutcome(number, outcome{})
		return 0, err
	}
	o := p.await(ctx, number, ch)
	if o.err != nil {
		return 0, fmt.Errorf("%w: %w", &sharding.NotLeaderError{Shard: shard}, o.err)
	}
	return o.index, nil
}

// each calls do for all shards concurrently and joins the errors.
func each(shards []sharding.ShardID, do func(i int, shard sharding.ShardID) error) error {
	errs := make([]error, len(shards))
	var all sync.WaitGroup
	for i, shard := range shards {
		all.Go(func() { errs[i] = do(i, shard) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Confirm returns the commit indexes, by ReadIndex, of shards that this node
// leads.
func (p *Part) Confirm(ctx context.Context, shards []sharding.ShardID) ([]uint64, error) {
	out := make([]uint64, len(shards))
	return out, each(shards, func(i int, shard sharding.ShardID) (err error) {
		out[i], err = p.confirm(ctx, shard)
		return err
	})
}

// Cut takes cuts of shards that this node leads. They contain everything
// committed before the call, and replace earlier cuts of these shards in the
// export.
func (p *Part) Cut(ctx context.Context, name string, shards []sharding.ShardID) ([]*eventlog.ShardExport, error) {
	cuts := make([]*eventlog.ShardExport, len(shards))
	err := each(shards, func(i int, shard sharding.ShardID) (err error) {
		cuts[i], err = p.cut(ctx, shard)
		return err
	})
	if err == nil {
		err = p.keep(name, cuts)
	}
	if err != nil {
		for _, c := range cuts {
			if c != nil {
				c.Close()
			}
		}
		return nil, err
	}
	return cuts, nil
}

func (p *Part) cut(ctx context.Context, shard sharding.ShardID) (*eventlog.ShardExport, error) {
	index, err := p.confirm(ctx, shard)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(storedPoll)
	defer tick.Stop()
	for {
		if stored, _ := p.opts.Machine.StateIndex(shard); stored >= index {
			cut, err := p.opts.Machine.Export(shard)
			if !errors.Is(err, journal.ErrInstalling) {
				return cut, err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until the applied entries of shard %d are stored: %w", shard, ctx.Err())
		}
	}
}

func (p *Part) keep(name string, cuts []*eventlog.ShardExport) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.exports[name]
	if p.closed || e == nil && len(p.exports) >= maxExports {
		return errTooMany
	}
	if e == nil {
		e = &export{cuts: make(map[sharding.ShardID]*eventlog.ShardExport)}
		e.timer = time.AfterFunc(cutsLast, func() { p.expire(name) })
		p.exports[name] = e
	}
	e.timer.Reset(cutsLast)
	for _, c := range cuts {
		if old := e.cuts[c.Shard]; old != nil {
			old.Close()
		}
		e.cuts[c.Shard] = c
	}
	return nil
}

func (p *Part) expire(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opts.Logger.Warn("an export was abandoned; releasing its shard states")
	p.drop(name)
}

// take removes a cut from an export. A cut can be read only once.
func (p *Part) take(name string, shard sharding.ShardID) (*eventlog.ShardExport, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.exports[name]
	if e == nil || e.cuts[shard] == nil {
		return nil, errUnknownCut
	}
	e.timer.Reset(cutsLast)
	c := e.cuts[shard]
	delete(e.cuts, shard)
	return c, nil
}

// sliceBytes is the approximate size of the parts that ReadCut passes to fn at
// a time.
const sliceBytes = 256 << 10

// ReadCut calls fn with some whole parts of a cut at a time. The slice is only
// valid during the call.
func (p *Part) ReadCut(ctx context.Context, name string, shard sharding.ShardID, fn func(parts []byte) error) error {
	c, err := p.take(name, shard)
	if err != nil {
		return err
	}
	defer c.Close()
	var buf []byte
	touched := p.opts.Clock()
	err = c.Parts(ctx, func(kind journal.PartKind, data []byte) error {
		if len(buf) > 0 && len(buf)+len(data) > sliceBytes {
			if err := fn(buf); err != nil {
				return err
			}
			buf = buf[:0]
			if now := p.opts.Clock(); now.Sub(touched) > time.Minute {
				touched = now
				p.touch(name)
			}
		}
		buf = journal.AppendPart(buf, kind, data)
		return nil
	})
	if err != nil || len(buf) == 0 {
		return err
	}
	return fn(buf)
}

// touch prevents the other cuts of an export from expiring while one is read.
func (p *Part) touch(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.exports[name]; e != nil {
		e.timer.Reset(cutsLast)
	}
}

// State is the progress of the import into a shard.
type State struct {
	Shard    sharding.ShardID
	Begun    bool
	ID       journal.ImportID
	Next     uint64
	Complete bool
	Entities uint64 // number of entities in the shard, including deleted ones
}

// State returns the progress of imports into shards that this node leads.
func (p *Part) State(ctx context.Context, shards []sharding.ShardID) ([]State, error) {
	out := make([]State, len(shards))
	return out, each(shards, func(i int, shard sharding.ShardID) error {
		index, err := p.confirm(ctx, shard)
		if err != nil {
			return err
		}
		for {
			if applied, _ := p.opts.Machine.Applied(shard); applied >= index {
				break
			}
			select {
			case <-time.After(storedPoll):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s := State{Shard: shard, Entities: p.opts.Machine.EntityRows(shard)}
		if in, ok := p.opts.Machine.ImportState(shard); ok {
			s.Begun, s.ID, s.Next, s.Complete = true, in.ID, in.Next, in.Complete
		}
		out[i] = s
		return nil
	})
}

// Chunk proposes the body of an import entry to a shard that this node leads,
// and returns when the entry was applied. The caller may retry if the error
// wraps errUnknownOutcome or a NotLeaderError. Other errors come from the
// journal and are permanent.
func (p *Part) Chunk(ctx context.Context, shard sharding.ShardID, body []byte) error {
	term, serves := p.opts.Leads.Lead(shard)
	if !serves {
		return &sharding.NotLeaderError{Shard: shard}
	}
	number, ch, err := p.expect()
	if err != nil {
		return err
	}
	data := append(journal.AppendEntryHeader(make([]byte, 0, journal.EntryHeaderBytes+len(body)), journal.EntryImport, term, number), body...)
	if err := p.opts.Log.Propose(shard, term, number, data); err != nil {
		p.deliverOutcome(number, outcome{})
		return fmt.Errorf("%w: %w", errUnknownOutcome, err)
	}
	switch o := p.await(ctx, number, ch); {
	case o.err == nil:
		return nil
	case errors.Is(o.err, eventlog.ErrFenced), !errors.Is(o.err, eventlog.ErrInvalid) && !errors.Is(o.err, eventlog.ErrSequence) && !errors.Is(o.err, eventlog.ErrChain):
		return fmt.Errorf("%w: %w", errUnknownOutcome, o.err)
	default:
		return o.err
	}
}
