package entity

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
)

// loadChunk is a piece of an entity's history on its way from a loader to the
// lane: events as the guest's apply takes them, and what to remember.
type loadChunk struct {
	load     *load
	snapshot *journal.Snapshot // the first chunk's, if there is one
	replay   replay            // of all chunks so far
	partial  *journal.Snapshot // the window before it was not read
	anew     bool              // the entity was deleted before this chunk
	frames   []byte
	seen     recollection
	start    journal.Sequence // of a deleted entity's next life
	lives    bool             // after the chunk
	outbox   uint64           // the last chunk's: sends on their way
	asOf     uint64           // as of this index
	sequence journal.Sequence // after the chunk
	hash     journal.Hash     // at sequence
	last     bool
	err      error
}

// firstFramesBytes is the buffer that a load begins with: enough for the events
// after most snapshots.
const firstFramesBytes = 4 << 10

// startLoad asks for the entity's history, from its newest snapshot that is of
// use. Nothing of the entity is in flight, so what has been applied is all
// there is.
func (c *core) startLoad(e *entity) {
	t := c.opts.Types.Lookup(e.id.Type)
	if t == nil {
		c.failWaiting(e, ErrNotServed)
		return
	}
	if err := t.checkID(e.id); err != nil {
		c.failWaiting(e, err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.phase, e.typ = loading, t
	x := e.more()
	x.load = &load{entity: e, id: e.id, shard: e.shard.id, typ: t, below: x.below, whole: x.whole, ctx: ctx, cancel: cancel, credit: make(chan struct{}, 2)}
	c.stats.Loads++
	if t.Transient {
		c.loadTransient(e.load())
		return
	}
	c.loader.start(x.load)
}

// loaded takes one chunk. Chunks of a load that was given up are ignored.
func (c *core) loaded(ch *loadChunk) {
	e := ch.load.entity
	if e.load() != ch.load {
		return
	}
	if ch.err != nil {
		if !c.hollow(e, ch) {
			c.abandon(e, ch.err)
		}
		return
	}
	ch.load.chunks = append(ch.load.chunks, ch)
	c.enqueue(e)
}

// applyChunk lets the guest apply the first chunk that has arrived.
func (c *core) applyChunk(e *entity) {
	l := e.load()
	if e.inst == nil {
		in := c.place(l.typ, e.faults() > 1)
		in.attach(e)
		if in.busy {
			return // the entity's turn comes when the visit is over
		}
	}
	v := c.call
	v.kind, v.in, v.entity, v.handle, v.chunk = callLoad, e.inst, e, uint64(e.handle), l.chunks[0]
	v.begin = v.begin[:0]
	if v.again = l.begun && v.chunk.anew; v.again || !l.begun {
		v.begin = abi.AppendEntityID(v.begin, e.id.ID)
		snap := v.chunk.snapshot
		if snap != nil {
			l.from = snap.Sequence
		}
		v.begin = abi.AppendSequence(v.begin, uint64(max(l.from, v.chunk.start)))
		if snap != nil {
			v.begin = abi.AppendSnapshot(v.begin, snap.State)
			c.stats.SnapshotLoads++
		}
	}
	l.chunks = l.chunks[1:]
	l.begun = true
	c.visit(v)
}

// chunkApplied goes on with a load after the guest took a chunk.
func (c *core) chunkApplied(e *entity, v *call) {
	l, ch := e.load(), v.chunk
	if l == nil || l != ch.load {
		return
	}
	if cutOff(v.err) {
		c.giveUp(e, v.err)
		return
	}
	if v.err != nil && l.from > 0 && !l.typ.Durable {
		c.fallBack(e, v.err)
		return
	}
	if v.err != nil {
		c.loadFault(e, v.err)
		return
	}
	if s := ch.partial; s != nil {
		x := e.more()
		x.partial, x.older, x.filter = true, s.Window, &filter{bits: bytes.Clone(s.Filter), ids: int(s.FilterIDs)}
	}
	c.noteAll(e, ch.seen)
	l.before = max(l.before, ch.seen.before)
	if !ch.last {
		select {
		case l.credit <- struct{}{}:
		default: // a loader that reads ahead on its own
		}
		return
	}
	l.cancel()
	c.recalled(e, l.before)
	e.phase, e.sequence, e.hash, e.replay = resident, ch.sequence, ch.hash, ch.replay
	e.lives = ch.lives
	e.rest.load, e.rest.whole, e.rest.below = nil, false, 0
	e.outboxLoaded(int(ch.outbox), ch.asOf)
	e.less()
	e.costly = c.isCostly(e)
	c.resides(e)
	if !e.held {
		delete(c.away, e)
	}
	c.enqueue(e)
}

// abandon ends a load that cannot succeed now.
func (c *core) abandon(e *entity, err error) {
	e.failed(err)
	c.evict(e)
	c.failWaiting(e, err)
}

// cannotOpen ends a load for which no instance could be made.
func (c *core) cannotOpen(e *entity, err error) {
	c.opts.Logger.Error("a guest instance cannot be opened", "entity_type", e.id.Type, "error", err)
	e.failed(err)
	c.giveUp(e, fmt.Errorf("%w: no room for a guest instance", ErrBusy))
}

// giveUp closes an entity's instance and answers all that waits for the entity.
func (c *core) giveUp(e *entity, err error) {
	waiting := e.waiting
	e.waiting = queue{}
	c.closeInstance(e.inst)
	for r := waiting.pop(); r != nil; r = waiting.pop() {
		c.settle(e.shard, r, Result{Err: err})
	}
}

// loadFault ends a load on which the guest failed. A history that a guest
// cannot apply is never skipped over: the entity stays away.
func (c *core) loadFault(e *entity, err error) {
	c.stats.Faults++
	c.blame(e, err)
	c.giveUp(e, &GuestFaultError{Message: err.Error()})
}

// fallBack loads an entity again without the snapshot on which the guest
// failed: from an older one, or from the first event.
func (c *core) fallBack(e *entity, err error) {
	e.rest.below = e.rest.load.from
	c.opts.Logger.Warn("a snapshot does not load", "entity_type", e.id.Type, "shard_id", e.shard.id, "error", err)
	if errors.Is(err, errRefusedLoad) {
		e.rest.load.begun = false // there is no state to drop
		c.evict(e)
	} else {
		c.stats.Faults++
		c.closeInstance(e.inst)
	}
	c.revive(e)
}

// loadAttempts bounds how often a load begins anew because records that it was
// about to read were cut. One snapshot of an entity that left can be on its way.
const loadAttempts = 4

// read reads the history of a load and emits it in chunks; emit blocks until
// the lane has room. It runs on a loader's goroutine.
func (l *load) read(h Histories, chunkBytes int, emit func(*loadChunk) error) {
	var ch *loadChunk
	var err error
	var cut *journal.CutError
	for range loadAttempts {
		// A cut is found before the first record, so nothing was emitted.
		if ch, err = l.attempt(h, chunkBytes, emit); !errors.As(err, &cut) {
			break
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return
	case errors.As(err, &cut):
		err = fmt.Errorf("%w: no snapshot stands for what was cut: %v", ErrDamaged, err)
	case errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrUnsupported):
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	ch.last, ch.err = true, err
	_ = emit(ch)
}

// attempt reads the history from the snapshot that there is now and returns its
// last chunk. A snapshot taken after that can cut what the attempt was about to
// read: *journal.CutError.
func (l *load) attempt(h Histories, chunkBytes int, emit func(*loadChunk) error) (*loadChunk, error) {
	ch := &loadChunk{load: l}
	var from, start journal.Sequence
	var met, ended bool // ended: of this life not all events are there
	var inside bool     // the next record is not the entity's first
	snap, err := h.Snapshot(l.ctx, l.shard, l.id, l.typ.Digest, l.below)
	if snap != nil {
		ch.snapshot, ch.lives, from, start = snap, true, snap.Window, snap.Sequence
		ch.replay.snapshot = snapshotCost(snap)
		if len(snap.Filter) > 0 && !l.whole {
			ch.partial, from = snap, start
		}
	}
	inside = from > 0
	behind := ch.partial != nil && snap.Stands != journal.Position{} // what the snapshot stands for is not read
	visit := func(rec *journal.Record, after journal.Hash) error {
		if inside {
			ch.seen.before, inside = rec.RecordedAt, false
		}
		if rec.Last() == start && start > 0 {
			if met = after == snap.Hash; !met {
				return errStraySnapshot
			}
		}
		for i := range rec.Events {
			if rec.Last() <= start || rec.Tombstone(i) || ended {
				break // in the snapshot, or for no guest
			}
			if l.typ.Durable {
				ch.snapshot = &journal.Snapshot{Sequence: rec.Last(), State: bytes.Clone(rec.Events[i].Payload)}
				continue
			}
			ev := &rec.Events[i]
			if n := abi.InputEventBytes(len(ev.Type), len(ev.Payload)); len(ch.frames) > 0 && len(ch.frames)+n > chunkBytes {
				if err := emit(ch); err != nil {
					return err
				}
				ch = &loadChunk{load: l, replay: ch.replay, frames: make([]byte, 0, chunkBytes)}
			}
			if ch.frames == nil {
				ch.frames = make([]byte, 0, firstFramesBytes)
			}
			ch.frames = abi.AppendInputEvent(ch.frames, uint64(rec.Expected)+uint64(i)+1, rec.RecordedAt, ev.Type, ev.Payload)
		}
		if rec.Last() > start || ch.partial != nil {
			ch.replay.add(len(rec.Events), journal.RecordBytes(rec))
		}
		ch.sequence, ch.hash = rec.Last(), after
		if !rec.Internal() {
			ch.seen.add(rec)
		}
		if rec.Flags&journal.FlagTombstone == 0 || rec.Last() <= start && start > 0 {
			ch.lives = ch.lives || start == 0 || rec.Last() > start
			return nil
		}
		// What came before counts for nothing but the window.
		ended = false
		*ch = loadChunk{load: l, partial: ch.partial, anew: true, start: rec.Last(), sequence: rec.Last(), hash: after, seen: ch.seen}
		return nil
	}
	var cut *journal.CutError
	switch {
	case err != nil:
	case behind:
		ch.sequence, ch.hash, met = start, snap.Hash, true
		if err = h.Since(l.ctx, l.shard, l.id, snap, visit); inside {
			ch.seen.before = snap.UpdatedAt
		}
	default:
		err = h.Read(l.ctx, l.shard, l.id, from, visit)
	}
	if from > 0 && from < start && errors.As(err, &cut) && cut.First-1 < start {
		// Its lane did not know of a snapshot that was taken before it, with a window
		// that begins later: no command before that is remembered.
		err = h.Read(l.ctx, l.shard, l.id, cut.First-1, visit)
	}
	if from == 0 && errors.As(err, &cut) {
		// The window is still there, and the next life, if there is one.
		ended, inside = !l.typ.Durable, true // the last state is whole
		if err = h.Read(l.ctx, l.shard, l.id, cut.First-1, visit); err == nil && ended {
			err = ErrCut
		}
	}
	if err == nil && snap != nil && !met {
		err = errStraySnapshot
	}
	if err == nil || err == ErrCut {
		var failed error
		if ch.outbox, ch.asOf, failed = h.PendingSends(l.shard, l.id); failed != nil {
			err = failed
		}
	}
	return ch, err
}
