// Package replay computes the state that an entity had at any sequence. The
// module that decided the event at that sequence replays the events from one of
// its own snapshots, or from the first event. The newest state is computed by
// the module that serves the type. The package also verifies modules by
// replaying entities with two modules, upcasts events for readers, and compares
// states with JSON patches (RFC 6902). It starts no goroutine.
package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/slots"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// Options configure Replays. All except Rate are required.
type Options struct {
	Machine   *eventlog.Machine
	Executors executors
	Types     *modules.Types
	Modules   *modules.Distribution
	Shards    poster
	// Rate is how many events Verify may replay per second; 0 means no limit.
	Rate int
}

// executors are the executors of the node.
type executors interface {
	load
	// ShardOf returns the shard of an entity.
	ShardOf(sharding.EntityID) sharding.ShardID
}

// load reports how busy the executors are.
type load interface {
	// IsBusy reports whether requests wait for executors, in which case
	// background work pauses.
	IsBusy() bool
}

// poster runs a request on a shard that this node leads.
type poster interface {
	Post(ctx context.Context, shard sharding.ShardID, r *request.Request) error
}

// Replays computes states in instances of its own from committed events, so
// that it does not disturb the executors and may take its time. It is safe for
// concurrent use.
type Replays struct {
	opts       Options
	states     *slots.Slots  // limits the states that are computed at a time
	verifying  chan struct{} // held by a running Verify
	touching   chan struct{} // one slot for each running touched check
	pace       *pace         // pace of verifications
	looked     cleanLooks    // results of touched
	compared   comparisons   // results of truncated
	catalogues *catalogues   // counts of stored event types
}

// New returns Replays.
func New(opts Options) *Replays {
	return &Replays{
		opts: opts, states: slots.New(maxReplays), verifying: make(chan struct{}, 1), touching: make(chan struct{}, touchedAtOnce), pace: newPace(opts.Rate, opts.Executors),
		compared: comparisons{seed: maphash.MakeSeed()}, catalogues: newCatalogues(),
	}
}

const (
	// maxReplays bounds the states computed at a time, because each needs a guest
	// instance.
	maxReplays = 2
	// attempts bounds how often the computation of the newest state is repeated.
	attempts = 4
)

// StateAt returns the state of an entity at a sequence, computed by the module
// that decided the event at that sequence. If at is nil, it returns the newest
// state, computed by the module that serves the type. If the module fails, the
// error is a *request.GuestFaultError. who identifies the caller: callers take
// turns.
func (r *Replays) StateAt(ctx context.Context, who string, id sharding.EntityID, at *journal.Sequence) (ReplayedState, error) {
	leave, err := r.states.Enter(ctx, who)
	if err != nil {
		return ReplayedState{}, err
	}
	defer leave()
	for tries := 0; ; tries++ {
		begins, err := r.begins(id)
		if err != nil {
			return ReplayedState{}, err
		}
		state, err := r.compute(ctx, id, at)
		if at == nil && err != nil && tries < attempts {
			// If the history was truncated meanwhile, a newer state exists.
			if now, failed := r.begins(id); failed == nil && now != begins && ctx.Err() == nil {
				continue
			}
		}
		if errors.Is(err, abi.ErrOverLimit) {
			err = fmt.Errorf("%w: %w", request.ErrOutputLimit, err)
		} else if _, failed := errors.AsType[*guest.Fault](err); failed {
			err = &request.GuestFaultError{Message: err.Error()}
		}
		return state, err
	}
}

// TryNewest returns the newest state, like StateAt, but does not wait for a
// slot. ok is false if no slot is free or the computation fails.
func (r *Replays) TryNewest(ctx context.Context, id sharding.EntityID) (state []byte, ok bool) {
	leave, ok := r.states.TryEnter()
	if !ok {
		return nil, false
	}
	defer leave()
	folded, err := r.compute(ctx, id, nil)
	return folded.State, err == nil
}

// begins returns the first retained sequence of an entity's history.
func (r *Replays) begins(id sharding.EntityID) (journal.Sequence, error) {
	head, err := r.opts.Machine.Info(r.opts.Executors.ShardOf(id), id)
	return head.FirstSequence(), err
}

// compute is StateAt for a caller that holds a slot.
func (r *Replays) compute(ctx context.Context, id sharding.EntityID, at *journal.Sequence) (ReplayedState, error) {
	t := r.opts.Types.For(id)
	if t != nil && t.Transient {
		return ReplayedState{}, &status.RefusedError{Reason: "the entity type is transient: its entities have no stored state; use a query"}
	}
	shard := r.opts.Executors.ShardOf(id)
	head, err := r.opts.Machine.Info(shard, id)
	if err != nil {
		return ReplayedState{}, err
	}
	end := head.Sequence
	if at == nil && t == nil {
		return ReplayedState{}, request.ErrModuleNotLoaded
	}
	if at != nil {
		if *at > end {
			return ReplayedState{}, &status.FutureSequenceError{Asked: *at, Last: end}
		}
		end = *at
	}
	if first := head.FirstSequence(); first > 1 && end < first {
		return ReplayedState{}, &journal.TruncatedError{First: first}
	}
	p := replay{Options: r.opts, shard: shard, id: id, end: end}
	if at == nil {
		p.digest = &t.Digest
	}
	p.serves = t
	defer p.replayer.close()
	state, err := p.run(ctx)
	if errors.Is(err, errTruncated) {
		err = &status.StateTruncatedError{From: head.Snapshots[0]}
	}
	return state, err
}

// replay is the computation of one state.
type replay struct {
	Options
	shard sharding.ShardID
	id    sharding.EntityID
	end   journal.Sequence

	serves   *modules.Served // serves the entity; nil: no module does
	digest   *journal.Digest // module to use; nil: the module of the event at end
	replayer replayer
	ended    bool // the entity is deleted at end
}

// run finds the module and lets it replay events from one of its own snapshots,
// or from the first event.
func (p *replay) run(ctx context.Context) (ReplayedState, error) {
	decided, last, err := p.last(ctx)
	digest := decided
	if p.digest != nil {
		digest = *p.digest
	}
	out := ReplayedState{Sequence: p.end, Module: digest, Deleted: p.ended}
	if err != nil {
		return out, err
	}
	m, err := p.Modules.Module(ctx, digest, "")
	if err != nil {
		return out, err
	}
	t, err := p.replayer.use(m, digest, p.id.Type)
	if err != nil {
		return out, err
	}
	whole := t.Kind == manifest.DurableState && p.end > 0 && !p.ended
	if whole && digest == decided {
		out.State = last.state
		return out, nil
	}
	if p.serves != nil && p.serves.Digest == digest && !p.serves.Durable {
		p.replayer.snapshots, p.replayer.version = p.serves.SnapshotUse, p.serves.SnapshotVersion
	}
	switch {
	case p.ended:
		err = p.replayer.start(ctx, p.id, p.end, given{})
	case whole:
		err = p.replayer.start(ctx, p.id, p.end, last)
	default:
		err = p.live(ctx)
	}
	if err != nil {
		return out, err
	}
	state, err := p.replayer.snapshot()
	out.State = bytes.Clone(state)
	return out, err
}

// last returns the module of the event at the end, and the event's payload as a
// state. For an entity without events, it returns the module that serves its
// type.
func (p *replay) last(ctx context.Context) (digest journal.Digest, state given, err error) {
	if p.end == 0 {
		t := p.Types.For(p.id)
		if t == nil {
			return digest, state, request.ErrModuleNotLoaded
		}
		return t.Digest, state, nil
	}
	found, err := eventAt(ctx, p.Machine, p.shard, p.id, p.end, func(r *journal.Record, i int) {
		digest, state = r.Module, givenBy(r.Events[i].Type, bytes.Clone(r.Events[i].Payload))
		p.ended = r.Flags&journal.FlagTombstone != 0 && r.Last() == p.end
	})
	if cut := (*journal.TruncatedError)(nil); found || errors.As(err, &cut) {
		return digest, state, err
	}
	return digest, state, errors.Join(err, journal.ErrDamaged)
}

// live computes the state of an entity that is not deleted at the end.
func (p *replay) live(ctx context.Context) error {
	from, err := p.replayer.begin(ctx, p.Machine, p.shard, p.id, p.end+1)
	if err != nil {
		return err
	}
	w := walk{id: p.id, to: &p.replayer}
	return w.read(ctx, p.Machine, p.shard, from, p.end)
}

// ReplayedState is a state that a module has computed from an entity's events.
type ReplayedState struct {
	State    []byte
	Sequence journal.Sequence // sequence of the last event included
	Module   journal.Digest
	Deleted  bool // the last event deleted the entity
}
