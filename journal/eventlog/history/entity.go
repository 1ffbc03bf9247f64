// Package history reads an entity's records and snapshots at one point in time,
// from the memtable and the store. Everything is verified: the checksum of each
// record, and the hash chain up to the entity's row. It has no goroutine.
package history

import (
	"context"
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
)

// Record is a record in the memtable. Once it is linked, only Next may change,
// and a reader of first..last does not follow Next beyond last.
type Record struct {
	At          journal.Position
	Seq         journal.Sequence // the entity's sequence after the record
	Raw         []byte
	KeyBytes    uint32 // length of the entity's encoded name
	Fingerprint uint32 // of the hash chain after the record; 0 below sharding.VersionFingerprints
	Next        *Record
}

// Snapshot is a snapshot in the memtable.
type Snapshot struct {
	Seq journal.Sequence
	Raw []byte
}

// Entity is an entity at one point in time. Its owner closes the view.
type Entity struct {
	store.Head
	Exists      bool
	First, Last *Record          // in the memtable
	Base        journal.Position // of the record before First
	Fresh       []Snapshot       // in the memtable
	View        kv.View
	Rows        *rows.Known // of its shard; nil if the shard has no state
	Key         []byte      // encoded name
}

// Reading selects records of an entity: records that end at From or later and, if
// After is not zero, come after that position, where the hash chain is Hash.
type Reading struct {
	From  journal.Sequence
	After journal.Position
	Hash  journal.Hash
}

// Visit is called with a record, which is only valid during the call, and the
// hash chain after it.
type Visit func(at journal.Position, rec *journal.Record, after journal.Hash) error

// Read calls fn with records in order. Errors of fn and ctx end the read and
// are returned unchanged. Any other error that is damage stops the shard.
func (e *Entity) Read(ctx context.Context, r Reading, fn Visit) error {
	if !e.Exists || r.From > e.Sequence {
		return nil
	}
	f := &follower{ctx: ctx, end: e.Head.Last, fn: fn}
	if err := f.begin(e.Cut, r.From); err != nil {
		return err
	}
	if r.After != (journal.Position{}) {
		f.started, f.at, f.seq, f.hash = true, r.After, r.From, r.Hash
	}
	var err error
	if !f.started || f.at != e.Head.Last {
		err = e.walk(f)
	}
	if err == nil && !f.hasReached(&e.Head) {
		err = damageError("its records do not match its entity row")
	}
	if err != nil && f.failed == nil {
		return fmt.Errorf("read entity in shard %d: %w", e.Rows.Shard, e.Rows.NoteDamage(err))
	}
	return err
}

// Recent limits a read to the newest records. Take the longest tail of the
// history whose client commands are within all limits: a read begins at the
// first record of this tail or earlier. It begins later only if the tail has
// too many other records, such as those of messages and timers:
// recordsPerCommand times as many as Commands, or bytesPerReplyByte times as
// many bytes as ReplyBytes. Otherwise the load of an entity that receives
// mostly messages and timers would read all records that Age allows.
type Recent struct {
	Commands, ReplyBytes int
	Age                  int64 // nanoseconds before the entity's last record
}

const (
	recordsPerCommand = 4
	bytesPerReplyByte = 8
)

// ReadRecent is Read from the first record, except that it skips old records of
// an entity that never had an event; skipped reports whether it did. The
// records of such an entity are never truncated, because a truncation needs an
// event. They do not change the hash chain, so a read can begin with any of
// these records. If step is not nil, it is called with the size of each record
// that is read only to find where to begin. step may block, and its error ends
// the read.
func (e *Entity) ReadRecent(ctx context.Context, r Recent, step func(bytes int) error, fn Visit) (skipped bool, err error) {
	if !e.Exists || e.Sequence > 0 || e.Cut != nil || e.Head.Records <= uint64(r.Commands) && e.Head.Bytes <= uint64(r.ReplyBytes) {
		// The entity has few records, or it has events, which a snapshot can
		// replace.
		return false, e.Read(ctx, Reading{}, fn)
	}
	after, err := e.recentAfter(ctx, r, step)
	if err != nil {
		return false, fmt.Errorf("read entity in shard %d: %w", e.Rows.Shard, e.Rows.NoteDamage(err))
	}
	return after != journal.Position{}, e.Read(ctx, Reading{After: after}, fn)
}

// recentAfter returns the position after which the recent records begin. It
// counts records backwards, first in the memtable and then block by block in
// the store, so it reads at most one block more than is needed.
func (e *Entity) recentAfter(ctx context.Context, r Recent, step func(bytes int) error) (after journal.Position, err error) {
	commands, replies, records, size := 0, 0, 0, 0
	oldest := e.UpdatedAt // of the records of the last block that was counted
	enough := func() bool {
		return commands > r.Commands || replies > r.ReplyBytes || e.UpdatedAt-oldest > r.Age || records > recordsPerCommand*r.Commands || size > bytesPerReplyByte*r.ReplyBytes
	}
	var view journal.RecordView
	count := func(raw []byte) error {
		if err := view.Parse(raw); err != nil {
			return err
		}
		oldest = min(oldest, view.RecordedAt)
		records, size = records+1, size+len(raw)
		if step != nil {
			if err := step(len(raw)); err != nil {
				return err
			}
		}
		if view.Section(journal.SectionSource) == nil {
			commands, replies = commands+1, replies+len(view.Reply)
		}
		return nil
	}
	first := e.Head.Last // the earliest record that was counted
	counted := e.First != nil
	for rec := e.First; rec != nil; rec = rec.Next {
		if err := count(rec.Raw); err != nil {
			return after, err
		}
		if rec == e.Last {
			first, after = e.First.At, e.Base
			break
		}
	}
	if enough() {
		return after, nil
	}
	after = journal.Position{}
	prefix := append(store.AppendPrefix(make([]byte, 0, 32+len(e.Key)), e.Rows.Shard, e.Rows.Generation, store.ClassRecord), e.Key...)
	err = e.View.ScanBack(prefix, func(_, body []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, err := store.OpenPack(body)
		if err != nil {
			return err
		}
		// Blocks may overlap: a record that is also in a later block was
		// already counted.
		begins, previous, any := first, p.Previous, counted
		for {
			at, raw, err := p.Next()
			if err != nil {
				return err
			}
			if raw == nil {
				break
			}
			if any && !at.Less(first) || e.Head.Last.Less(at) {
				continue
			}
			if err := count(raw); err != nil {
				return err
			}
			if counted = true; at.Less(begins) {
				begins = at
			}
		}
		if first = begins; enough() {
			after = previous
			return store.ErrStop
		}
		return nil
	})
	return after, err
}

// Records calls fn with all retained records in encoded form, and returns their
// number.
func (e *Entity) Records(ctx context.Context, fn func(raw []byte) error) (n uint64, err error) {
	f := &follower{ctx: ctx, end: e.Head.Last}
	f.anchor(e.Cut)
	f.fn = func(journal.Position, *journal.Record, journal.Hash) error {
		n++
		return fn(f.view.Raw)
	}
	err = e.walk(f)
	if err == nil && (!f.hasReached(&e.Head) || n != e.Head.Records) {
		err = damageError("its records do not match its entity row")
	}
	return n, err
}

// walk feeds the follower with blocks from the store, unless the memtable has
// everything needed, and then with the memtable.
func (e *Entity) walk(f *follower) error {
	need, err := e.needStore(f)
	if err != nil {
		return err
	}
	if need {
		prefix := append(store.AppendPrefix(make([]byte, 0, 32+len(e.Key)), e.Rows.Shard, e.Rows.Generation, store.ClassRecord), e.Key...)
		start := store.AppendRecordSuffix(prefix[:len(prefix):len(prefix)], f.from, f.at)
		if err := e.View.Scan(prefix, start, func(_, body []byte) error { return f.pack(body) }); err != nil {
			return err
		}
		if f.failed != nil {
			return f.failed
		}
	}
	if e.First == nil {
		return nil
	}
	if f.started && f.at.Less(e.Base) {
		return damageError("records are missing between the store and the memtable")
	}
	for r := e.First; ; r = r.Next {
		if gap, err := f.record(r.At, r.Raw); err != nil || gap {
			if gap {
				err = damageError("records are missing between the store and the memtable")
			}
			return err
		}
		if r == e.Last {
			return nil
		}
	}
}

func (e *Entity) needStore(f *follower) (bool, error) {
	if e.First == nil {
		return true, nil
	}
	if f.started {
		return f.at.Less(e.Base), nil
	}
	if err := f.view.Parse(e.First.Raw); err != nil {
		return false, err
	}
	return f.view.Expected >= f.from, nil
}

// SnapshotAt returns one of the snapshots listed in the entity's row.
func (e *Entity) SnapshotAt(seq journal.Sequence) (*journal.Snapshot, error) {
	var raw []byte
	for _, o := range e.Fresh {
		if o.Seq == seq {
			raw = o.Raw
		}
	}
	if raw == nil {
		key := append(store.AppendPrefix(nil, e.Rows.Shard, e.Rows.Generation, store.ClassSnapshot), e.Key...)
		found, err := e.View.Get(store.AppendSnapshotSuffix(key, seq), func(body []byte) error {
			raw = slices.Clone(body)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, &store.DamageError{Where: "the snapshots of an entity", What: "a snapshot is missing"}
		}
	}
	out := &journal.Snapshot{}
	if err := out.Decode(raw); err != nil {
		return nil, err
	}
	if out.Sequence != seq || string(store.AppendEntityID(nil, out.Entity)) != string(e.Key) {
		return nil, &store.DamageError{Where: "the snapshots of an entity", What: "a snapshot is stored under a wrong key"}
	}
	return out, nil
}
