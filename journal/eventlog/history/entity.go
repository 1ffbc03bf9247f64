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
	Seq         journal.Sequence // of the entity after the record
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
// are returned unchanged. If other errors are damage, the shard is stopped.
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
