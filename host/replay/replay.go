// Package replay computes the state that an entity had at any sequence: the module
// that decided the event there evolves it from a snapshot of its own, or from the
// first event. What an entity is now the module that serves its type makes. It
// starts no goroutine.
package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/host/rpc/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// Options of Replays; all are required.
type Options struct {
	Machine *eventlog.Machine
	ShardOf func(sharding.EntityID) sharding.ShardID
	Types   *modules.Types
	Modules *modules.Distribution
}

// Replays compute states beside the lanes: in an instance of its own, from what
// is committed, so that it disturbs nobody and may take its time. It is safe for
// concurrent use.
type Replays struct {
	opts      Options
	slots     chan struct{} // one for each state that is computed
	verifying chan struct{} // taken by a Verify
	touching  chan struct{} // one for each Touched
}

// New makes Replays.
func New(opts Options) *Replays {
	return &Replays{opts, make(chan struct{}, maxReplays), make(chan struct{}, 1), make(chan struct{}, touchedAtOnce)}
}

const (
	// maxReplays bounds the states that are computed at a time: each takes a guest
	// instance.
	maxReplays = 2
	// batchBytes is how much of the events a guest gets at once.
	batchBytes = 128 << 10
	// attempts bounds how often the newest state is computed anew.
	attempts = 4
	// handle is the one entity of an instance.
	handle = 1
)

var (
	// errDone ends the reading of a history.
	errDone = errors.New("the state is there")
	// errCut: of the life that the state belongs to not all events are
	// there, and no snapshot before it.
	errCut = errors.New("the events of the state were cut")
)

// StateAt returns the state of an entity at a sequence, as the module of the
// event there makes it, or its newest, as the module that serves the type does.
func (r *Replays) StateAt(ctx context.Context, id sharding.EntityID, at *journal.Sequence) (rpc.Folded, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return rpc.Folded{}, ctx.Err()
	}
	for tries := 0; ; tries++ {
		begins, err := r.begins(id)
		if err != nil {
			return rpc.Folded{}, err
		}
		state, err := r.compute(ctx, id, at)
		if at == nil && err != nil && tries < attempts {
			// Where what the newest state was is cut meanwhile, there is a newer one.
			if now, failed := r.begins(id); failed == nil && now != begins && ctx.Err() == nil {
				continue
			}
		}
		return state, err
	}
}

// TryNewest is StateAt of the newest state where nobody waits for a slot; ok is
// false where one does, or where it fails.
func (r *Replays) TryNewest(ctx context.Context, id sharding.EntityID) (state []byte, ok bool) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	default:
		return nil, false
	}
	folded, err := r.compute(ctx, id, nil)
	return folded.State, err == nil
}

// begins is the first sequence of an entity that is kept.
func (r *Replays) begins(id sharding.EntityID) (journal.Sequence, error) {
	head, err := r.opts.Machine.Info(r.opts.ShardOf(id), id)
	return head.Begins(), err
}

// compute is StateAt with a slot.
func (r *Replays) compute(ctx context.Context, id sharding.EntityID, at *journal.Sequence) (rpc.Folded, error) {
	t := r.opts.Types.Served(id.Type)
	if t != nil && t.Transient {
		return rpc.Folded{}, &rpc.RefusedError{Reason: "the entities of this type keep no state; query them"}
	}
	shard := r.opts.ShardOf(id)
	head, err := r.opts.Machine.Info(shard, id)
	if err != nil {
		return rpc.Folded{}, err
	}
	end := head.Sequence
	if at == nil && t == nil {
		return rpc.Folded{}, request.ErrModuleNotLoaded
	}
	if at != nil {
		if *at > end {
			return rpc.Folded{}, &status.FutureSequenceError{Asked: *at, Last: end}
		}
		end = *at
	}
	if first := head.Begins(); first > 1 && end < first {
		return rpc.Folded{}, &journal.CutError{First: first}
	}
	p := replay{Options: r.opts, shard: shard, id: id, end: end}
	if at == nil {
		p.digest = &t.Digest
	}
	defer p.close()
	state, err := p.run(ctx)
	if errors.Is(err, errCut) {
		err = &status.StateCutError{From: head.Snapshots[0]}
	}
	return state, err
}

// replay is one state on its way.
type replay struct {
	Options
	shard sharding.ShardID
	id    sharding.EntityID
	end   journal.Sequence

	digest  *journal.Digest // of the module that is asked; nil: that of the event at end
	guest   *engine.Instance
	index   uint32
	ended   bool // the entity was deleted at end
	missing bool // of the life that is read the first events
	begin   []byte
	frames  []byte
}

func (p *replay) close() {
	if p.guest != nil {
		p.guest.Close()
	}
}

// run finds the module, and lets it evolve the state from a snapshot of its
// own, or from the first event.
func (p *replay) run(ctx context.Context) (rpc.Folded, error) {
	decided, last, err := p.last(ctx)
	digest := decided
	if p.digest != nil {
		digest = *p.digest
	}
	out := rpc.Folded{Sequence: p.end, Module: digest}
	if err != nil {
		return out, err
	}
	m, err := p.Modules.Module(ctx, digest, "")
	if err != nil {
		return out, err
	}
	t, index, ok := m.Manifest().Type(p.id.Type)
	if !ok {
		return out, fmt.Errorf("module %s does not serve entity type %s", digest, p.id.Type)
	}
	whole := t.Kind == manifest.DurableState && p.end > 0 && !p.ended
	if whole && digest == decided {
		out.State = last
		return out, nil
	}
	p.index = uint32(index)
	if p.guest, err = m.Instantiate(ctx); err != nil {
		return out, err
	}
	switch {
	case p.ended:
		err = p.initial(p.end, nil)
	case whole:
		err = p.initial(p.end, last)
	default:
		err = p.live(ctx, digest)
	}
	if err != nil {
		return out, err
	}
	state, err := p.guest.Snapshot(handle)
	out.State = bytes.Clone(state)
	return out, err
}

// last returns the module of the event at the end, and its payload; of an
// entity without events the module that serves its type.
func (p *replay) last(ctx context.Context) (digest journal.Digest, payload []byte, err error) {
	if p.end == 0 {
		t := p.Types.Served(p.id.Type)
		if t == nil {
			return digest, nil, request.ErrModuleNotLoaded
		}
		return t.Digest, nil, nil
	}
	err = p.Machine.Read(ctx, p.shard, p.id, p.end, func(_ journal.Position, r *journal.Record) error {
		i := int(p.end - r.Expected - 1)
		if i < 0 || i >= len(r.Events) {
			return nil
		}
		digest, payload = r.Module, bytes.Clone(r.Events[i].Payload)
		p.ended = r.Flags&journal.FlagTombstone != 0 && r.Last() == p.end
		return errDone
	})
	if errors.Is(err, errDone) {
		return digest, payload, nil
	}
	if cut := (*journal.CutError)(nil); errors.As(err, &cut) {
		return digest, nil, err
	}
	return digest, nil, errors.Join(err, journal.ErrDamaged)
}

// live computes the state of an entity that was not deleted at the end.
func (p *replay) live(ctx context.Context, digest journal.Digest) error {
	from, err := p.load(ctx, digest)
	if err != nil {
		return err
	}
	return p.evolve(ctx, from)
}

// initial makes the state that a life begins with, nil, or one that was kept as
// a whole.
func (p *replay) initial(at journal.Sequence, state []byte) error {
	ok, err := p.start(at, state)
	if err == nil && !ok {
		err = errRefused
	}
	return err
}

// load makes the state that events are applied to, and returns its sequence.
func (p *replay) load(ctx context.Context, digest journal.Digest) (journal.Sequence, error) {
	snap, err := p.Machine.Snapshot(ctx, p.shard, p.id, digest, p.end+1)
	if err != nil {
		return 0, err
	}
	if snap != nil {
		if ok, err := p.start(snap.Sequence, snap.State); err != nil || ok {
			return snap.Sequence, err
		}
	}
	return 0, p.initial(0, nil)
}

// start makes the state of a sequence; false where the guest refuses.
func (p *replay) start(at journal.Sequence, snapshot []byte) (bool, error) {
	p.begin = abi.AppendSequence(abi.AppendEntityID(p.begin[:0], p.id.ID), uint64(at))
	if snapshot != nil {
		p.begin = abi.AppendSnapshot(p.begin, snapshot)
	}
	status, err := p.guest.Load(p.index, handle, p.begin)
	return status == abi.LoadDone, err
}

// evolve applies the events after from. Where the first of them were cut, those
// of a life that begins after the cut are all there.
func (p *replay) evolve(ctx context.Context, from journal.Sequence) error {
	if from >= p.end {
		return nil
	}
	p.missing = false
	err := p.read(ctx, from, from+1)
	var cut *journal.CutError
	if errors.As(err, &cut) {
		p.missing = true
		err = p.read(ctx, cut.First-1, cut.First-1)
	}
	switch {
	case err != nil && !errors.Is(err, errDone):
		return err
	case p.missing:
		return errCut
	}
	return p.apply()
}

// read applies the events after from, of records that end at first or later. A
// tombstone ends a life: the next one begins with the initial state.
func (p *replay) read(ctx context.Context, from, first journal.Sequence) error {
	return p.Machine.Read(ctx, p.shard, p.id, first, func(_ journal.Position, r *journal.Record) error {
		for i := range r.Events {
			sequence := r.Expected + journal.Sequence(i) + 1
			if sequence <= from {
				continue
			}
			if sequence > p.end {
				return errDone
			}
			if r.Tombstone(i) || p.missing {
				continue
			}
			p.frames = abi.AppendInputEvent(p.frames, uint64(sequence), r.RecordedAt, r.Events[i].Type, r.Events[i].Payload)
			if len(p.frames) >= batchBytes {
				if err := p.apply(); err != nil {
					return err
				}
			}
		}
		if r.Flags&journal.FlagTombstone == 0 || r.Last() > p.end || r.Last() <= from {
			return ctx.Err()
		}
		return p.endLife(r.Last())
	})
}

// endLife begins with the initial state behind a tombstone.
func (p *replay) endLife(at journal.Sequence) error {
	p.missing = false
	if err := p.apply(); err != nil {
		return err
	}
	if err := p.guest.Drop(handle); err != nil {
		return err
	}
	_, err := p.start(at, nil)
	return err
}

func (p *replay) apply() error {
	if len(p.frames) == 0 {
		return nil
	}
	err := p.guest.Apply(handle, p.frames)
	p.frames = p.frames[:0]
	return err
}
