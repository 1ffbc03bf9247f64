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

// entity returns an entity as it is now; its view is the caller's to close.
func (r *Reader) entity(id sharding.ShardID, e sharding.EntityID) (history.Entity, error) {
	s := history.Entity{Key: store.AppendEntityID(nil, e)}
	look, err := r.capture(id, &s)
	if err != nil || s.Exists || s.Rows == nil {
		return s, err
	}
	if s.Head, s.Exists, err = look.ReadHead(&store.RowHasher{}, s.View, s.Key); err != nil {
		s.View.Close()
	}
	return s, s.Rows.Met(err)
}

// capture takes what is in memory of an entity, or what is known of its head.
func (r *Reader) capture(id sharding.ShardID, s *history.Entity) (look rows.Lookup, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		if err := sh.unreadable(); err != nil {
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

// Head returns the entity's last sequence and the chain's link at it. An
// entity that is deleted does not exist, but keeps both: its next record
// follows them. It does not block on applying; it reads the store for an
// entity that is not in memory.
func (r *Reader) Head(id sharding.ShardID, e sharding.EntityID) (seq journal.Sequence, hash journal.Hash, exists bool, err error) {
	info, err := r.Info(id, e)
	return info.Sequence, info.Hash, info.exists && !info.Deleted, err
}

// Info is an entity's head with its name.
type Info struct {
	Entity sharding.EntityID
	store.Head
	exists bool
}

// Info returns all that is kept of an entity beside its records; the zero Head
// for one that never existed.
func (r *Reader) Info(id sharding.ShardID, e sharding.EntityID) (Info, error) {
	info := Info{Entity: e}
	if r.cached(id, &info) {
		return info, nil
	}
	s, err := r.entity(id, e)
	if err != nil {
		return info, fmt.Errorf("read head in shard %d: %w", id, err)
	}
	s.View.Close()
	info.Head, info.exists = s.Head, s.Exists
	return info, nil
}

func (r *Reader) cached(id sharding.ShardID, info *Info) bool {
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

// Absent reports that the entity is known never to have had a record. It reads
// nothing from the store and does not wait for a batch, so false says nothing.
func (r *Reader) Absent(id sharding.ShardID, e sharding.EntityID) bool {
	var scratch [512]byte
	key := store.AppendEntityID(scratch[:0], e)
	var w store.RowHasher
	if r.long.Load() {
		return false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	sh := r.shards[id]
	if sh == nil || sh.unreadable() != nil {
		return false
	}
	if h := sh.heads[string(key)]; h != nil && h.exists {
		return false
	}
	look := sh.rows.Lookup(&w, store.ClassEntity, key)
	return look.Absent()
}

// Read calls fn with the entity's records in order: those that end at from or
// later, or with from 0 all of them. Both what is in the store and what was
// applied since is read, as of one moment, each record once. The record, and
// all its slices, are valid during the call; an error of fn ends the read and
// is returned. Every record's checksum and the chain are verified up to the
// entity's head: journal.ErrDamaged is returned in place of a history with a
// hole. A missing entity has no records. Where records were cut, from the last
// sequence of these on is the least that can be read: *journal.CutError.
func (r *Reader) Read(ctx context.Context, id sharding.ShardID, e sharding.EntityID, from journal.Sequence,
	fn func(at journal.Position, rec *journal.Record) error) error {
	return r.read(ctx, id, e, history.Reading{From: from}, func(at journal.Position, rec *journal.Record, _ journal.Hash) error {
		return fn(at, rec)
	})
}

// History reads with the chain's link after each record instead of its position.
type History struct{ *Machine }

// Read is Machine.Read; after is the link after the record.
func (h History) Read(ctx context.Context, id sharding.ShardID, e sharding.EntityID, from journal.Sequence,
	fn func(rec *journal.Record, after journal.Hash) error) error {
	return h.read(ctx, id, e, history.Reading{From: from}, func(_ journal.Position, rec *journal.Record, after journal.Hash) error {
		return fn(rec, after)
	})
}

// Since reads the records behind a snapshot that Snapshot has returned: those
// after the place where it stands, which continue the chain at its link. Stands
// must not be zero.
func (h History) Since(ctx context.Context, id sharding.ShardID, e sharding.EntityID, s *journal.Snapshot,
	fn func(rec *journal.Record, after journal.Hash) error) error {
	return h.read(ctx, id, e, history.Reading{From: s.Sequence, After: s.Stands, Hash: s.Hash},
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
