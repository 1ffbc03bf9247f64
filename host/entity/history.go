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

// historyReader reads the applied state, in order and verified, even if it
// has not reached the store yet. Read calls fn with every record that ends at
// from or later, and with the hash of the chain after that record. If from is
// 0 it reads all records, including those of commands before the first event.
// The record is valid only during fn.
type historyReader interface {
	Read(ctx context.Context, shard sharding.ShardID, entity sharding.EntityID, from journal.Sequence,
		fn func(rec *journal.Record, after journal.Hash) error) error
	// ReadSince reads the records after the position of a snapshot that
	// Snapshot has returned. The position must be known.
	ReadSince(ctx context.Context, shard sharding.ShardID, entity sharding.EntityID, snapshot *journal.Snapshot,
		fn func(rec *journal.Record, after journal.Hash) error) error
	// ReadRecent is Read from 0, except that it may skip old records of an
	// entity that never had an event. It does not skip the latest client
	// commands that fit into the limits, unless these are spread over many times
	// as many other records. It reports whether it has skipped records. step is
	// called with the size of each record that is read only to find where to
	// begin; it may block, and its error ends the read.
	ReadRecent(ctx context.Context, shard sharding.ShardID, entity sharding.EntityID, commands, replyBytes int, age int64, step func(bytes int) error,
		fn func(rec *journal.Record, after journal.Hash) error) (skipped bool, err error)
	// Snapshot returns the newest snapshot of the entity that use accepts and
	// whose sequence is lower than below; 0 for below means no limit. It returns
	// nil if there is no such snapshot.
	Snapshot(ctx context.Context, shard sharding.ShardID, entity sharding.EntityID, use journal.SnapshotUse,
		below journal.Sequence) (*journal.Snapshot, error)
	// IsAbsent returns true if it is known without I/O that the entity never
	// had a record. If it returns false, the entity may or may not have
	// records. It does not block for long.
	IsAbsent(shard sharding.ShardID, entity sharding.EntityID) bool
	// PendingMessages returns the number of unacknowledged messages of an
	// entity as of a log index.
	PendingMessages(shard sharding.ShardID, entity sharding.EntityID) (n, asOf uint64, err error)
}

// historyLoad is one load of an entity's history, from its newest usable
// snapshot, in chunks that its guest applies one after another. Read runs on a
// loader's goroutine and does not change the historyLoad.
//
// An entity's state is a function of its records, but a load can rarely read
// all of them: there may be many, and the first ones may have been compacted
// away. So a load starts from the newest snapshot that the type's module reads,
// and the guest applies the events after it. These cases need more:
//
//   - The idempotency window begins before the snapshot. If the snapshot has a
//     filter of command ids, the commands before it are not read, and the window
//     is Partial until a load with Whole set reads them. Without a filter the
//     load reads from the beginning of the window, and the guest gets only the
//     events after the snapshot.
//   - A tombstone ends the entity. The records before it count only for the
//     window, and the guest begins again with the records after it.
//   - A Durable type stores whole states, so the guest gets only the last one.
//   - The entity never had an event, so it has no snapshot. Only the window needs
//     its records, and the load reads no more than the window can hold.
//   - The first records are gone and no snapshot is usable. The load fails with
//     request.ErrCompacted, unless a later tombstone or a stored state makes these
//     records unnecessary.
//
// If the load reads the record at the snapshot's sequence, the hash of the
// chain there must be that of the snapshot; otherwise the entity is damaged. A
// newer snapshot may compact records while a load is about to read them. The
// load then starts again from that snapshot.
//
// Events and replies may exceed the memory, so a chunk has a limited size, and
// a loader is at most two chunks ahead of the executor (load.credit).
type historyLoad struct {
	ID     sharding.EntityID
	Shard  sharding.ShardID
	Type   *Type
	Below  journal.Sequence // only snapshots with a lower sequence are loaded; 0 for no limit
	Whole  bool             // read the whole window
	Limits window.Limits    // limits of the window
	End    journal.Sequence // sequence of the last record to read; 0 reads all
	// Beyond, if set, is called before each further record once the load has
	// read costlyBytes. Records that are read only to find where to begin count
	// too. Beyond may block, and its error ends the load.
	Beyond func() error

	read     int              // bytes of records that were read
	hasState bool             // the guest has a state
	from     journal.Sequence // sequence of the snapshot that the load began with; 0 if it began with the first event
}

// HasState reports whether a step has created a state in the guest.
func (l *historyLoad) HasState() bool { return l.hasState }

// From is the sequence of the snapshot that the load began with, or 0 if it
// began with the first event.
func (l *historyLoad) From() journal.Sequence { return l.from }

// MarkRefused notes that the guest created no state in the first step.
func (l *historyLoad) MarkRefused() { l.hasState = false }

// historyChunk is a part of an entity's history on its way from a loader to the
// executor: events for the guest to apply, and commands to remember.
type historyChunk struct {
	Replay   historyReplay     // sum over all chunks so far
	Partial  *journal.Snapshot // a snapshot whose window was not read
	Seen     window.Batch
	Commands bool             // the chunk has only commands to remember, and nothing for the guest
	Exists   bool             // the entity exists after the chunk
	Outbox   uint64           // messages in flight; last chunk only
	AsOf     uint64           // log index as of which Outbox was counted
	Chain    uint8            // length of the chain that started a run; last chunk only
	Sequence journal.Sequence // sequence after the chunk
	Hash     journal.Hash     // hash of the chain at Sequence
	Last     bool
	Err      error

	snapshot      *journal.Snapshot // snapshot for the first chunk of a state, if there is one
	version       int               // version of the state in snapshot; 0 means the module's own
	afterDeletion bool              // the entity was deleted before this chunk
	start         journal.Sequence  // sequence of the deletion
	frames        []byte
}

// historyReplay is the cost of the next load of an entity.
type historyReplay struct {
	Events   int32 // events since the newest snapshot
	Bytes    int32 // bytes of the records of these events
	Snapshot int32 // bytes of records that must accumulate before another snapshot
}

// Add adds the events and bytes of records.
func (r *historyReplay) Add(events, bytes int) {
	r.Events = int32(min(int(r.Events)+events, math.MaxInt32))
	r.Bytes = int32(min(int(r.Bytes)+bytes, math.MaxInt32))
}

// snapshotCost returns the bytes of records that must accumulate before a
// snapshot like s is worth its cost. The filter is optional, so its size counts
// eightfold; it thus remains a small part of the bytes that are written.
func snapshotCost(s *journal.Snapshot) int32 { return int32(len(s.State) + 8*len(s.Filter)) }

// commandsBytes is the size of ids and replies at which a chunk of commands is
// emitted. Records without events produce no frames, and their replies may be
// gigabytes, of which a window keeps the last 4 MiB.
const commandsBytes = 128 << 10

// firstFramesBytes is the initial buffer of a load. It fits the events after
// most snapshots.
const firstFramesBytes = 4 << 10

var (
	// errEndReached ends the reading of a history at historyLoad.End.
	errEndReached    = errors.New("reached the end of the requested history")
	errStraySnapshot = fmt.Errorf("%w: a snapshot does not belong to the entity's history", journal.ErrDamaged)
)

// loadAttempts bounds how often a load starts again because the records that it
// was about to read were compacted away. For example, a snapshot of an evicted
// entity can still be in flight.
const loadAttempts = 4

// Read reads the history and emits it in chunks. emit blocks until the
// executor has room. The last chunk has the error if the read failed. If ctx
// ends, there is no last chunk.
func (l *historyLoad) Read(ctx context.Context, h historyReader, chunkBytes int, emit func(*historyChunk) error) {
	var ch *historyChunk
	var err error
	var cut *journal.TruncatedError
	for range loadAttempts {
		// A compaction is found before the first record, so nothing was
		// emitted.
		if ch, err = l.attempt(ctx, h, chunkBytes, emit); !errors.As(err, &cut) {
			break
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return
	case errors.Is(err, journal.ErrStopped):
		err = &sharding.NotLeaderError{Shard: l.Shard} // this node has lost the leadership, but does not know it yet
	case errors.As(err, &cut):
		err = fmt.Errorf("%w: no snapshot covers the truncated events: %v", request.ErrDamaged, err)
	case errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrUnsupported):
		err = fmt.Errorf("%w: %w", request.ErrDamaged, err)
	}
	ch.Last, ch.Err = true, err
	_ = emit(ch)
}

// attempt reads the history from the newest usable snapshot and returns its last
// chunk. If a later snapshot compacts records that the attempt was about to
// read, it returns a *journal.TruncatedError.
func (l *historyLoad) attempt(ctx context.Context, h historyReader, chunkBytes int, emit func(*historyChunk) error) (*historyChunk, error) {
	ch := &historyChunk{}
	var from, start journal.Sequence
	var met, ended bool // ended: some events since the last deletion were compacted away
	var inside bool     // the next record is not the entity's first
	var foreign bool    // the module may be unable to read the snapshot's state
	var chain runChain
	var begins int64 // RecordedAt of the first record that was read
	snap, err := l.snapshot(ctx, h)
	if snap != nil {
		// The record at the snapshot's sequence has the state too, with its
		// version.
		foreign = l.Type.Durable && !l.Type.loadsSnapshotsOf(snap.Module)
		ch.snapshot, ch.Exists, from, start = snap, true, snap.Window, snap.Sequence
		ch.Replay.Snapshot = snapshotCost(snap)
		if snap.Checkpoint {
			chain = runChain{true, snap.Chain}
		}
		if len(snap.Filter) > 0 && !l.Whole {
			ch.Partial, from = snap, start
		}
	}
	inside = from > 0
	partial := ch.Partial != nil
	behind := partial && snap.Stands != journal.Position{} && !foreign // start after the snapshot's position
	visit := func(rec *journal.Record, after journal.Hash) error {
		if l.End > 0 && rec.Last() > l.End {
			return errEndReached
		}
		size := journal.RecordBytes(rec)
		if err := l.charge(size); err != nil {
			return err
		}
		if inside {
			ch.Seen.Before, inside = rec.RecordedAt, false
		}
		if begins == 0 {
			begins = rec.RecordedAt
		}
		if l.Type.Workflow {
			chain.add(rec)
		}
		if rec.Last() == start && start > 0 {
			if met = after == snap.Hash; !met {
				return errStraySnapshot
			}
		}
		for i := range rec.Events {
			if rec.Last() <= start && !(foreign && rec.Last() == start) || rec.Tombstone(i) || ended {
				break // the snapshot has the event already, or the guest must not get it
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
		if (rec.Last() > start || partial) && (!l.Type.Workflow || len(rec.Events) > 0) {
			ch.Replay.Add(len(rec.Events), size)
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
		// Only the window needs the records before the deletion.
		ended = false
		*ch = historyChunk{Partial: ch.Partial, afterDeletion: true, start: rec.Last(), Sequence: rec.Last(), Hash: after, Seen: ch.Seen}
		return nil
	}
	read := func(from journal.Sequence) error {
		if err := h.Read(ctx, l.Shard, l.ID, from, visit); !errors.Is(err, errEndReached) {
			return err
		}
		return nil
	}
	var cut *journal.TruncatedError
	switch {
	case err != nil:
	case behind:
		ch.Sequence, ch.Hash, met = start, snap.Hash, true
		if err = h.ReadSince(ctx, l.Shard, l.ID, snap, visit); errors.Is(err, errEndReached) {
			err = nil
		}
		if inside {
			ch.Seen.Before = snap.UpdatedAt
		}
	case from == 0 && snap == nil && l.Limits.Commands > 0 && !l.Type.Workflow: // a run needs its first record, which has the length of its chain
		var skipped bool
		if skipped, err = h.ReadRecent(ctx, l.Shard, l.ID, l.Limits.Commands, l.Limits.ReplyBytes, l.Limits.ClientMaxAge, l.charge, visit); skipped {
			ch.Seen.Before, ch.Seen.Skipped = begins, true
		}
	default:
		err = read(from)
	}
	if from > 0 && from < start && errors.As(err, &cut) && cut.First-1 < start {
		// The executor that took the snapshot did not know of an earlier
		// snapshot whose window begins later. No command before that window is
		// remembered.
		err = read(cut.First - 1)
	}
	if from == 0 && errors.As(err, &cut) {
		// The records of the window still exist, and so do those after a
		// deletion.
		ended, inside = !l.Type.Durable, true // a Durable state is complete in its last record
		if err = read(cut.First - 1); err == nil && ended {
			err = request.ErrCompacted
		}
	}
	if err == nil && snap != nil && !met {
		err = errStraySnapshot
	}
	if err == nil || err == request.ErrCompacted {
		var failed error
		if ch.Outbox, ch.AsOf, failed = h.PendingMessages(l.Shard, l.ID); failed != nil {
			err = failed
		}
	}
	ch.Chain = chain.length
	return ch, err
}

// charge counts the bytes of a record that the load reads, and waits for a turn
// once the load is costly.
func (l *historyLoad) charge(bytes int) error {
	if l.read += bytes; l.read < costlyBytes || l.Beyond == nil {
		return nil
	}
	return l.Beyond()
}

// runChain finds the length of the chain of messages that started a run: the
// first record of the entity's life has it.
type runChain struct {
	begun  bool
	length uint8
}

func (c *runChain) add(rec *journal.Record) {
	if !c.begun {
		c.begun, c.length = true, 0
		if data := rec.Section(journal.SectionSource); len(data) > 0 && data[0] == journal.SourceEntity {
			if from, err := journal.DecodeMessageSource(data); err == nil {
				c.length = from.Hops
			}
		}
	}
	if rec.Flags&journal.FlagTombstone != 0 {
		*c = runChain{}
	}
}

// snapshot returns the newest snapshot that the type's module loads. Once the
// guest has refused a snapshot, snapshots in ForeignSnapshots.IfTruncated are
// excluded, because only the newest snapshot of an entity was verified.
func (l *historyLoad) snapshot(ctx context.Context, h historyReader) (*journal.Snapshot, error) {
	use := l.Type.SnapshotUse
	if l.Below > 0 && l.End == 0 && !l.Type.Durable {
		use = func(module journal.Digest, _ bool) journal.SnapshotRank { return l.Type.SnapshotUse(module, false) }
	}
	return h.Snapshot(ctx, l.Shard, l.ID, use, l.Below)
}
