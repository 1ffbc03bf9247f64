package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// stateService folds states beside the lanes: in an instance of its own, from
// what is committed, so that it disturbs nobody and may take its time.
type stateService struct{ n *Node }

const (
	// maxFolds bounds the states that are folded at a time: each takes a guest
	// instance.
	maxFolds = 2
	// foldBytes is how much of the events a guest gets at once.
	foldBytes = 128 << 10
	// foldAttempts bounds how often the newest state is folded anew.
	foldAttempts = 4
	// foldHandle is the one entity of a folding instance.
	foldHandle = 1
)

var (
	// errFolded ends the reading of a history.
	errFolded = errors.New("the state is folded")
	// errNotFolded: of the life that the state belongs to not all events are
	// there, and no snapshot before it.
	errNotFolded = errors.New("the events of the state were cut")
)

// Fold implements rpc.States.
func (s stateService) Fold(ctx context.Context, id sharding.EntityID, at *journal.Sequence) ([]byte, journal.Sequence, error) {
	select {
	case s.n.folds <- struct{}{}:
		defer func() { <-s.n.folds }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	for tries := 0; ; tries++ {
		begins, err := s.begins(id)
		if err != nil {
			return nil, 0, err
		}
		state, end, err := s.fold(ctx, id, at)
		if at == nil && err != nil && tries < foldAttempts {
			// Where what the newest state was is cut meanwhile, there is a newer one.
			if now, failed := s.begins(id); failed == nil && now != begins && ctx.Err() == nil {
				continue
			}
		}
		return state, end, err
	}
}

// begins is the first sequence of an entity that is kept.
func (s stateService) begins(id sharding.EntityID) (journal.Sequence, error) {
	head, err := s.n.machine.Info(s.n.region.ShardOf(id), id)
	return head.Begins(), err
}

// fold is Fold with a place among those that fold.
func (s stateService) fold(ctx context.Context, id sharding.EntityID, at *journal.Sequence) ([]byte, journal.Sequence, error) {
	if t := s.n.bindings.served(id.Type); t != nil && t.Transient {
		return nil, 0, &rpc.RefusedError{Reason: "the entities of this type keep no state; query them"}
	}
	shard := s.n.region.ShardOf(id)
	head, err := s.n.machine.Info(shard, id)
	if err != nil {
		return nil, 0, err
	}
	end := head.Sequence
	if at != nil {
		if *at > end {
			return nil, 0, &rpc.FutureSequenceError{Asked: *at, Last: end}
		}
		end = *at
	}
	if first := head.Begins(); first > 1 && end < first {
		return nil, 0, &journal.CutError{First: first}
	}
	f := folding{n: s.n, shard: shard, id: id, end: end}
	defer f.close()
	state, err := f.fold(ctx)
	if errors.Is(err, errNotFolded) {
		err = &rpc.StateCutError{From: head.Snapshots[0]}
	}
	return state, end, err
}

// folding is one state on its way.
type folding struct {
	n     *Node
	shard sharding.ShardID
	id    sharding.EntityID
	end   journal.Sequence

	guest   *engine.Instance
	index   uint32
	ended   bool // the entity was deleted at end
	missing bool // of the life that is read the first events
	begin   []byte
	frames  []byte
}

func (f *folding) close() {
	if f.guest != nil {
		f.guest.Close()
	}
}

// fold finds the module that decided the last event, and lets it evolve the
// state from a snapshot of its own, or from the first event.
func (f *folding) fold(ctx context.Context) ([]byte, error) {
	digest, last, err := f.last(ctx)
	if err != nil {
		return nil, err
	}
	m, err := f.n.module(ctx, digest, "")
	if err != nil {
		return nil, err
	}
	t, index, ok := m.Manifest().Type(f.id.Type)
	if !ok {
		return nil, fmt.Errorf("module %s does not serve entity type %s", digest, f.id.Type)
	}
	if t.Kind == manifest.DurableState && f.end > 0 && !f.ended {
		return last, nil
	}
	f.index = uint32(index)
	if f.guest, err = m.Instantiate(ctx); err != nil {
		return nil, err
	}
	if f.ended {
		err = f.initial(f.end)
	} else {
		err = f.live(ctx, digest)
	}
	if err != nil {
		return nil, err
	}
	state, err := f.guest.Snapshot(foldHandle)
	return bytes.Clone(state), err
}

// last returns the module of the event at the end, and its payload; of an
// entity without events the module that serves its type.
func (f *folding) last(ctx context.Context) (digest journal.Digest, payload []byte, err error) {
	if f.end == 0 {
		t := f.n.bindings.served(f.id.Type)
		if t == nil {
			return digest, nil, rpc.ErrModuleNotLoaded
		}
		return t.Digest, nil, nil
	}
	err = f.n.machine.Read(ctx, f.shard, f.id, f.end, func(_ journal.Position, r *journal.Record) error {
		i := int(f.end - r.Expected - 1)
		if i < 0 || i >= len(r.Events) {
			return nil
		}
		digest, payload = r.Module, bytes.Clone(r.Events[i].Payload)
		f.ended = r.Flags&journal.FlagTombstone != 0 && r.Last() == f.end
		return errFolded
	})
	if errors.Is(err, errFolded) {
		return digest, payload, nil
	}
	if cut := (*journal.CutError)(nil); errors.As(err, &cut) {
		return digest, nil, err
	}
	return digest, nil, errors.Join(err, journal.ErrDamaged)
}

// live folds the state of an entity that was not deleted at the end.
func (f *folding) live(ctx context.Context, digest journal.Digest) error {
	from, err := f.load(ctx, digest)
	if err != nil {
		return err
	}
	return f.evolve(ctx, from)
}

// initial makes the state of an entity without events in this life.
func (f *folding) initial(at journal.Sequence) error {
	ok, err := f.start(at, nil)
	if err == nil && !ok {
		err = errors.New("the module refuses the initial state")
	}
	return err
}

// load makes the state that events are applied to, and returns its sequence.
func (f *folding) load(ctx context.Context, digest journal.Digest) (journal.Sequence, error) {
	snap, err := f.n.machine.Snapshot(ctx, f.shard, f.id, digest, f.end+1)
	if err != nil {
		return 0, err
	}
	if snap != nil {
		if ok, err := f.start(snap.Sequence, snap.State); err != nil || ok {
			return snap.Sequence, err
		}
	}
	return 0, f.initial(0)
}

// start makes the state of a sequence; false where the guest refuses.
func (f *folding) start(at journal.Sequence, snapshot []byte) (bool, error) {
	f.begin = abi.AppendSequence(abi.AppendEntityID(f.begin[:0], f.id.ID), uint64(at))
	if snapshot != nil {
		f.begin = abi.AppendSnapshot(f.begin, snapshot)
	}
	status, err := f.guest.Load(f.index, foldHandle, f.begin)
	return status == abi.LoadDone, err
}

// evolve applies the events after from. Where the first of them were cut, those
// of a life that begins after the cut are all there.
func (f *folding) evolve(ctx context.Context, from journal.Sequence) error {
	if from >= f.end {
		return nil
	}
	f.missing = false
	err := f.read(ctx, from, from+1)
	var cut *journal.CutError
	if errors.As(err, &cut) {
		f.missing = true
		err = f.read(ctx, cut.First-1, cut.First-1)
	}
	switch {
	case err != nil && !errors.Is(err, errFolded):
		return err
	case f.missing:
		return errNotFolded
	}
	return f.apply()
}

// read applies the events after from, of records that end at first or later. A
// tombstone ends a life: the next one begins with the initial state.
func (f *folding) read(ctx context.Context, from, first journal.Sequence) error {
	return f.n.machine.Read(ctx, f.shard, f.id, first, func(_ journal.Position, r *journal.Record) error {
		for i := range r.Events {
			sequence := r.Expected + journal.Sequence(i) + 1
			if sequence <= from {
				continue
			}
			if sequence > f.end {
				return errFolded
			}
			if r.Tombstone(i) || f.missing {
				continue
			}
			f.frames = abi.AppendInputEvent(f.frames, uint64(sequence), r.RecordedAt, r.Events[i].Type, r.Events[i].Payload)
			if len(f.frames) >= foldBytes {
				if err := f.apply(); err != nil {
					return err
				}
			}
		}
		if r.Flags&journal.FlagTombstone == 0 || r.Last() > f.end || r.Last() <= from {
			return ctx.Err()
		}
		return f.endLife(r.Last())
	})
}

// endLife begins with the initial state behind a tombstone.
func (f *folding) endLife(at journal.Sequence) error {
	f.missing = false
	if err := f.apply(); err != nil {
		return err
	}
	if err := f.guest.Drop(foldHandle); err != nil {
		return err
	}
	_, err := f.start(at, nil)
	return err
}

func (f *folding) apply() error {
	if len(f.frames) == 0 {
		return nil
	}
	err := f.guest.Apply(foldHandle, f.frames)
	f.frames = f.frames[:0]
	return err
}
