package eventlog

import (
	"context"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// entity returns an entity's current state. The caller must close its view.
func (r *Reader) entity(id sharding.ShardID, e sharding.EntityID) (history.Entity, error) {
	s := history.Entity{Key: store.AppendEntityID(nil, e)}
	look, err := r.capture(id, &s)
	if err != nil || s.Exists || s.Rows == nil {
		return s, err
	}
	if s.Head, s.Exists, err = look.ReadHead(&store.RowHasher{}, s.View, s.Key); err != nil {
		s.View.Close()
	}
	return s, s.Rows.NoteDamage(err)
}

// capture copies the in-memory state of an entity or, if its row is not in
// memory, the knowledge about the stored row.
func (r *Reader) capture(id sharding.ShardID, s *history.Entity) (look rows.Lookup, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		if err := sh.readError(); err != nil {
			return look, err
		}
		s.Rows = sh.rows
		h := sh.heads[string(s.Key)]
		if h == nil || !h.exists {
			look = sh.rows.Lookup(&store.RowHasher{}, store.ClassEntity, s.Key)
		} else {
			s.Head, s.Exists = h.Head, true
			s.First, s.Last, s.Base = h.first, h.last, h.base
			if h.snaps != nil {
				s.Fresh = append(append(s.Fresh, h.snaps.taken...), h.snaps.fresh...)
			}
		}
	}
	s.View, err = r.view()
	return look, err
}

// Head returns the entity's last sequence and the hash chain at that point. It
// returns both for a deleted entity too, because the entity's next record
// continues from them. Head does not wait for applying, and reads the store if
// the entity's row is not in memory.
func (r *Reader) Head(id sharding.ShardID, e sharding.EntityID) (seq journal.Sequence, hash journal.Hash, exists bool, err error) {
	info, err := r.Info(id, e)
	return info.Sequence, info.Hash, info.exists && !info.Deleted, err
}

// Info is an entity's row with its name.
type Info struct {
	Entity sharding.EntityID
	store.Head
	exists bool
}

// Info returns everything stored about an entity apart from its records, or a
// zero row if it never existed.
func (r *Reader) Info(id sharding.ShardID, e sharding.EntityID) (Info, error) {
	info := Info{Entity: e}
	if r.readCached(id, &info) {
		return info, nil
	}
	s, err := r.entity(id, e)
	if err != nil {
		return info, fmt.Errorf("read entity row in shard %d: %w", id, err)
	}
	s.View.Close()
	info.Head, info.exists = s.Head, s.Exists
	return info, nil
}

func (r *Reader) readCached(id sharding.ShardID, info *Info) bool {
	var scratch [128]byte
	key := store.AppendEntityID(scratch[:0], info.Entity)
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil && sh.stopped == nil {
		if h := sh.heads[string(key)]; h != nil {
			info.Head, info.exists = h.Head, h.exists
			return true
		}
	}
	return false
}

// IsAbsent reports whether the entity is known to have never had a record. It
// neither reads the store nor waits for a batch, so a result of false proves
// nothing.
func (r *Reader) IsAbsent(id sharding.ShardID, e sharding.EntityID) bool {
	var scratch [512]byte
	key := store.AppendEntityID(scratch[:0], e)
	var w store.RowHasher
	if r.long.Load() {
		return false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	sh := r.shards[id]
	if sh == nil || sh.readError() != nil {
		return false
	}
	if h := sh.heads[string(key)]; h != nil && h.exists {
		return false
	}
	look := sh.rows.Lookup(&w, store.ClassEntity, key)
	return look.IsAbsent()
}

// Read calls fn with the entity's records in order: the records that end at
// sequence from or later, or all records if from is 0. It reads a consistent
// snapshot of the store and the memtable, each record once. The record and its
// slices are only valid during the call. An error of fn ends the read and is
// returned. The checksum of every record and the hash chain are verified up to
// the entity's row: a history with a gap is reported as journal.ErrDamaged. An
// entity that never existed has no records. If records were truncated, reading
// must start at the last truncated sequence or later; otherwise it fails with
// *journal.TruncatedError.
func (r *Reader) Read(ctx context.Context, id sharding.ShardID, e sharding.EntityID, from journal.Sequence,
	fn func(at journal.Position, rec *journal.Record) error) error {
	return r.read(ctx, id, e, history.Reading{From: from}, func(at journal.Position, rec *journal.Record, _ journal.Hash) error {
		return fn(at, rec)
	})
}

// History reads records with the hash chain after each record instead of its
// position.
type History struct{ *Machine }

// Read is Machine.Read; after is the chain after the record.
func (h History) Read(ctx context.Context, id sharding.ShardID, e sharding.EntityID, from journal.Sequence,
	fn func(rec *journal.Record, after journal.Hash) error) error {
	return h.read(ctx, id, e, history.Reading{From: from}, func(_ journal.Position, rec *journal.Record, after journal.Hash) error {
		return fn(rec, after)
	})
}

// ReadSince reads the records after a snapshot returned by Snapshot, whose
// Stands must not be zero. These are the records after Stands, and they
// continue the chain from the snapshot's hash.
func (h History) ReadSince(ctx context.Context, id sharding.ShardID, e sharding.EntityID, s *journal.Snapshot,
	fn func(rec *journal.Record, after journal.Hash) error) error {
	return h.read(ctx, id, e, history.Reading{From: s.Sequence, After: s.Stands, Hash: s.Hash},
		func(_ journal.Position, rec *journal.Record, after journal.Hash) error { return fn(rec, after) })
}

// ReadRecent reads all records of an entity that has ever had an event. For any
// other entity it reads only the newest records: at least the longest tail of
// client commands within the given limits, unless that tail has more other
// records than history.Recent allows. age is in nanoseconds.
// history.Entity.ReadRecent describes step. skipped reports whether older
// records exist.
func (h History) ReadRecent(ctx context.Context, id sharding.ShardID, e sharding.EntityID, commands, replyBytes int, age int64, step func(bytes int) error,
	fn func(rec *journal.Record, after journal.Hash) error) (skipped bool, err error) {
	s, err := h.entity(id, e)
	if err != nil {
		return false, fmt.Errorf("read entity in shard %d: %w", id, err)
	}
	defer s.View.Close()
	return s.ReadRecent(ctx, history.Recent{Commands: commands, ReplyBytes: replyBytes, Age: age}, step,
		func(_ journal.Position, rec *journal.Record, after journal.Hash) error { return fn(rec, after) })
}

func (r *Reader) read(ctx context.Context, id sharding.ShardID, e sharding.EntityID, which history.Reading, fn history.Visit) error {
	s, err := r.entity(id, e)
	if err != nil {
		return fmt.Errorf("read entity in shard %d: %w", id, err)
	}
	defer s.View.Close()
	return s.Read(ctx, which, fn)
}
