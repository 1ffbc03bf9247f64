package entity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/entity/window"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// HistoryReader reads what has been applied, whether or not it has reached the store,
// in order and verified: every record that ends at from or later (from 0 all of
// them, those of commands before the first event too), and the chain's link
// after it. The record is valid during fn only.
type HistoryReader interface {
	Read(ctx context.Context, shard sharding.ShardID, entity sharding.EntityID, from journal.Sequence,
		fn func(rec *journal.Record, after journal.Hash) error) error
	// ReadSince reads the records after the place where a snapshot stands that
	// Snapshot has returned, which is known.
	ReadSince(ctx context.Context, shard sharding.ShardID, entity sharding.EntityID, snapshot *journal.Snapshot,
		fn func(rec *journal.Record, after journal.Hash) error) error
	// Snapshot returns the entity's newest snapshot before the sequence below, 0
	// for any, that use accepts; nil if there is none.
	Snapshot(ctx context.Context, shard sharding.ShardID, entity sharding.EntityID, use journal.SnapshotUse,
		below journal.Sequence) (*journal.Snapshot, error)
	// IsAbsent reports that the entity never had a record, where that is known
	// without reading; false says nothing. It does not block for long.
	IsAbsent(shard sharding.ShardID, entity sharding.EntityID) bool
	// PendingMessages is how many messages of an entity were not acknowledged as
	// of a log index.
	PendingMessages(shard sharding.ShardID, entity sharding.EntityID) (n, asOf uint64, err error)
}

// historyLoad is one reading of an entity's history: from its newest snapshot that is
// of use, in chunks that its guest applies one after the other. Read runs on a
// loader's goroutine and changes nothing in the Load.
type historyLoad struct {
	ID    sharding.EntityID
	Shard sharding.ShardID
	Type  *Type
	Below journal.Sequence // snapshots from here on do not load; 0 for none of them
	Whole bool             // the whole window is read
	End   journal.Sequence // of the last record that is read; 0: of all

	begun bool             // the guest has a state
	from  journal.Sequence // the snapshot's; 0 from the first event on
}

// Begun reports that a step has made a state in the guest.
func (l *historyLoad) Begun() bool { return l.begun }

// From is the sequence of the snapshot that the load began with; 0 for the
// first event.
func (l *historyLoad) From() journal.Sequence { return l.from }

// Refused notes that the guest made no state in the first step.
func (l *historyLoad) Refused() { l.begun = false }

// historyChunk is a piece of an entity's history on its way from a loader to the executor:
// events as the guest's apply takes them, and what to remember.
type historyChunk struct {
	Replay   historyReplay     // of all chunks so far
	Partial  *journal.Snapshot // the window before it was not read
	Seen     window.Batch
	Commands bool             // it has what to remember alone, and is nothing for the guest
	Exists   bool             // after the chunk
	Outbox   uint64           // the last chunk's: messages on their way
	AsOf     uint64           // as of this index
	Sequence journal.Sequence // after the chunk
	Hash     journal.Hash     // at Sequence
	Last     bool
	Err      error

	snapshot *journal.Snapshot // the first chunk's, if there is one
	version  int               // of the state in it; 0: the module's own
	anew     bool              // the entity was deleted before this chunk
	start    journal.Sequence  // of what comes after its deletion
	frames   []byte
}

// historyReplay is what a load of an entity would have to go through.
type historyReplay struct {
	Events   int32 // since the newest snapshot
	Bytes    int32 // of their records
	Snapshot int32 // what a snapshot must be worth
}

// Add counts records.
func (r *historyReplay) Add(events, bytes int) {
	r.Events = int32(min(int(r.Events)+events, math.MaxInt32))
	r.Bytes = int32(min(int(r.Bytes)+bytes, math.MaxInt32))
}

// snapshotCost is what a snapshot must be worth in bytes of records. A filter
// is there for convenience, and may only be a small part of what is written.
func snapshotCost(s *journal.Snapshot) int32 { return int32(len(s.State) + 8*len(s.Filter)) }

// commandsBytes is at how many bytes of ids and replies a chunk of commands is
// emitted. Records without events make no frames, and there may be gigabytes of
// their replies, of which a window keeps the last 4 MiB.
const commandsBytes = 128 << 10

// firstFramesBytes is the buffer that a load begins with: enough for the events
// after most snapshots.
const firstFramesBytes = 4 << 10

var (
	// errEnough ends the reading of a history at Load.End.
	errEnough        = errors.New("the history is read as far as it is asked for")
	errStraySnapshot = fmt.Errorf("%w: a snapshot is not of the entity's history", journal.ErrDamaged)
)

// loadAttempts bounds how often a load begins anew because records that it was
// about to read were cut. One snapshot of an entity that left can be on its
// way.
const loadAttempts = 4

// Read reads the history and emits it in chunks; emit blocks until the executor has
// room. The last chunk has the error, if there is one; where ctx has ended
// there is no last chunk.
func (l *historyLoad) Read(ctx context.Context, h HistoryReader, chunkBytes int, emit func(*historyChunk) error) {
	var ch *historyChunk
	var err error
	var cut *journal.CutError
	for range loadAttempts {
		// A cut is found before the first record, so nothing was emitted.
		if ch, err = l.attempt(ctx, h, chunkBytes, emit); !errors.As(err, &cut) {
			break
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return
	case errors.Is(err, journal.ErrStopped):
		err = &sharding.NotLeaderError{Shard: l.Shard} // as this node is about to hear
	case errors.As(err, &cut):
		err = fmt.Errorf("%w: no snapshot stands for what was cut: %v", request.ErrDamaged, err)
	case errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrUnsupported):
		err = fmt.Errorf("%w: %w", request.ErrDamaged, err)
	}
	ch.Last, ch.Err = true, err
	_ = emit(ch)
}

// attempt reads the history from the snapshot that there is now and returns its
// last chunk. A snapshot taken after that can cut what the attempt was about to
// read: *journal.CutError.
func (l *historyLoad) attempt(ctx context.Context, h HistoryReader, chunkBytes int, emit func(*historyChunk) error) (*historyChunk, error) {
	ch := &historyChunk{}
	var from, start journal.Sequence
	var met, ended bool // ended: not all events since the last deletion are there
	var inside bool     // the next record is not the entity's first
	var foreign bool    // the snapshot is no state that the module reads for sure
	snap, err := l.snapshot(ctx, h)
	if snap != nil {
		// The record that it stands on has the state too, and says its version.
		foreign = l.Type.Durable && !l.Type.LoadsSnapshotsOf(snap.Module)
		ch.snapshot, ch.Exists, from, start = snap, true, snap.Window, snap.Sequence
		ch.Replay.Snapshot = snapshotCost(snap)
		if len(snap.Filter) > 0 && !l.Whole {
			ch.Partial, from = snap, start
		}
	}
	inside = from > 0
	partial := ch.Partial != nil
	behind := partial && snap.Stands != journal.Position{} && !foreign // what the snapshot stands for is not read
	visit := func(rec *journal.Record, after journal.Hash) error {
		if l.End > 0 && rec.Last() > l.End {
			return errEnough
		}
		if inside {
			ch.Seen.Before, inside = rec.RecordedAt, false
		}
		if rec.Last() == start && start > 0 {
			if met = after == snap.Hash; !met {
				return errStraySnapshot
			}
		}
		for i := range rec.Events {
			if rec.Last() <= start && !(foreign && rec.Last() == start) || rec.Tombstone(i) || ended {
				break // in the snapshot, or for no guest
			}
			if l.Type.Durable {
				ch.version = manifest.StateEventVersion(rec.Events[i].Type)
				ch.snapshot = &journal.Snapshot{Sequence: rec.Last(), State: bytes.Clone(rec.Events[i].Payload)}
				continue
			}
			ev := &rec.Events[i]
			if n := abi.InputEventBytes(len(ev.Type), len(ev.Payload)); len(ch.frames) > 0 && len(ch.frames)+n > chunkBytes {
				if err := emit(ch); err != nil {
					return err
				}
				ch = &historyChunk{Replay: ch.Replay, frames: make([]byte, 0, chunkBytes)}
			}
			if ch.frames == nil {
				ch.frames = make([]byte, 0, firstFramesBytes)
			}
			ch.frames = abi.AppendInputEvent(ch.frames, uint64(rec.Expected)+uint64(i)+1, rec.RecordedAt, ev.Type, ev.Payload)
		}
		if rec.Last() > start || partial {
			ch.Replay.Add(len(rec.Events), journal.RecordBytes(rec))
		}
		ch.Sequence, ch.Hash = rec.Last(), after
		if !rec.Internal() {
			ch.Seen.Add(rec)
		}
		if ch.Seen.Bytes() >= min(chunkBytes, commandsBytes) {
			if err := emit(&historyChunk{Partial: ch.Partial, Seen: ch.Seen, Commands: true}); err != nil {
				return err
			}
			ch.Partial, ch.Seen = nil, window.Batch{}
		}
		if rec.Flags&journal.FlagTombstone == 0 || rec.Last() <= start && start > 0 {
			ch.Exists = ch.Exists || start == 0 || rec.Last() > start
			return nil
		}
		// What came before counts for nothing but the window.
		ended = false
		*ch = historyChunk{Partial: ch.Partial, anew: true, start: rec.Last(), Sequence: rec.Last(), Hash: after, Seen: ch.Seen}
		return nil
	}
	read := func(from journal.Sequence) error {
		if err := h.Read(ctx, l.Shard, l.ID, from, visit); !errors.Is(err, errEnough) {
			return err
		}
		return nil
	}
	var cut *journal.CutError
	switch {
	case err != nil:
	case behind:
		ch.Sequence, ch.Hash, met = start, snap.Hash, true
		if err = h.ReadSince(ctx, l.Shard, l.ID, snap, visit); errors.Is(err, errEnough) {
			err = nil
		}
		if inside {
			ch.Seen.Before = snap.UpdatedAt
		}
	default:
		err = read(from)
	}
	if from > 0 && from < start && errors.As(err, &cut) && cut.First-1 < start {
		// Its executor did not know of a snapshot that was taken before it, with a window
		// that begins later: no command before that is remembered.
		err = read(cut.First - 1)
	}
	if from == 0 && errors.As(err, &cut) {
		// The window is still there, and what came after a deletion.
		ended, inside = !l.Type.Durable, true // the last state is whole
		if err = read(cut.First - 1); err == nil && ended {
			err = request.ErrCut
		}
	}
	if err == nil && snap != nil && !met {
		err = errStraySnapshot
	}
	if err == nil || err == request.ErrCut {
		var failed error
		if ch.Outbox, ch.AsOf, failed = h.PendingMessages(l.Shard, l.ID); failed != nil {
			err = failed
		}
	}
	return ch, err
}

// snapshot returns the newest snapshot that the type's module loads. Once the
// guest has refused one, none of last resort is tried: only the newest of an
// entity was compared.
func (l *historyLoad) snapshot(ctx context.Context, h HistoryReader) (*journal.Snapshot, error) {
	use := l.Type.SnapshotUse
	if l.Below > 0 && l.End == 0 && !l.Type.Durable {
		use = func(module journal.Digest, _ bool) journal.SnapshotRank { return l.Type.SnapshotUse(module, false) }
	}
	return h.Snapshot(ctx, l.Shard, l.ID, use, l.Below)
}
