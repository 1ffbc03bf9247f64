package eventlog

import (
	"context"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// snapshot is an entity at one moment: its head, what of it is in the overlay,
// and the store with everything before that.
type snapshot struct {
	store.Head
	exists      bool
	first, last *applied
	base        journal.Position
	snaps       []appliedSnapshot // in the overlay
	view        View
	shard       sharding.ShardID
	generation  uint32
	key         []byte
}

// snapshot's view is the caller's to close.
func (m *Machine) snapshot(id sharding.ShardID, e sharding.EntityID) (snapshot, error) {
	s := snapshot{shard: id, key: store.AppendEntityID(nil, e)}
	if err := m.capture(&s); err != nil {
		return s, err
	}
	if s.exists {
		return s, nil
	}
	var err error
	if s.Head, s.exists, err = readHead(s.view, id, s.generation, s.key); err != nil {
		s.view.Close()
	}
	return s, err
}

func (m *Machine) capture(s *snapshot) (err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if sh := m.shards[s.shard]; sh != nil {
		if sh.installing != nil {
			return ErrInstalling
		}
		s.generation = sh.generation
		if h := sh.heads[string(s.key)]; h != nil && h.exists {
			s.Head, s.exists = h.Head, true
			s.first, s.last, s.base = h.first, h.last, h.base
			if h.snaps != nil {
				s.snaps = append(append(s.snaps, h.snaps.taken...), h.snaps.fresh...)
			}
		}
	}
	s.view, err = m.st.ViewAt(m.readAt)
	return err
}

func readHead(v View, id sharding.ShardID, generation uint32, entity []byte) (h store.Head, exists bool, err error) {
	key := append(store.AppendPrefix(make([]byte, 0, 16+len(entity)), id, generation, store.ClassEntity), entity...)
	exists, err = v.Get(key, func(body []byte) error {
		h, err = store.DecodeHead(body)
		return err
	})
	return h, exists, err
}

// loadHead reads a head from the store as of the version.
func (m *Machine) loadHead(id sharding.ShardID, generation uint32, entity []byte, version uint64) (store.Head, bool, error) {
	view, err := m.st.ViewAt(version)
	if err != nil {
		return store.Head{}, false, err
	}
	defer view.Close()
	return readHead(view, id, generation, entity)
}

// Head returns the entity's last sequence and the chain's link at it. An
// entity that is deleted does not exist, but keeps both: its next record
// follows them. It does not block on applying; it reads the store for an
// entity that is not in memory.
func (m *Machine) Head(id sharding.ShardID, e sharding.EntityID) (seq journal.Sequence, hash journal.Hash, exists bool, err error) {
	info, err := m.Info(id, e)
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
func (m *Machine) Info(id sharding.ShardID, e sharding.EntityID) (Info, error) {
	info := Info{Entity: e}
	if m.cached(id, &info) {
		return info, nil
	}
	s, err := m.snapshot(id, e)
	if err != nil {
		return info, fmt.Errorf("read head in shard %d: %w", id, err)
	}
	s.view.Close()
	info.Head, info.exists = s.Head, s.exists
	return info, nil
}

func (m *Machine) cached(id sharding.ShardID, info *Info) bool {
	var scratch [128]byte
	key := store.AppendEntityID(scratch[:0], info.Entity)
	m.mu.RLock()
	defer m.mu.RUnlock()
	if sh := m.shards[id]; sh != nil {
		if h := sh.heads[string(key)]; h != nil {
			info.Head, info.exists = h.Head, h.exists
			return true
		}
	}
	return false
}

// Read calls fn with the entity's records in order: those that end at from or
// later, or with from 0 all of them. Both what is in the store and what was
// applied since is read, as of one moment, each record once. The record, and
// all its slices, are valid during the call; an error of fn ends the read and
// is returned. Every record's checksum and the chain are verified up to the
// entity's head: journal.ErrDamaged is returned in place of a history with a
// hole. A missing entity has no records. Where records were cut, from the last
// sequence of these on is the least that can be read: *journal.CutError.
func (m *Machine) Read(ctx context.Context, id sharding.ShardID, e sharding.EntityID, from journal.Sequence,
	fn func(at journal.Position, rec *journal.Record) error) error {
	return m.read(ctx, id, e, reading{from: from}, func(at journal.Position, rec *journal.Record, _ journal.Hash) error {
		return fn(at, rec)
	})
}

// History reads with the chain's link after each record instead of its position.
type History struct{ *Machine }

// Read is Machine.Read; after is the link after the record.
func (h History) Read(ctx context.Context, id sharding.ShardID, e sharding.EntityID, from journal.Sequence,
	fn func(rec *journal.Record, after journal.Hash) error) error {
	return h.read(ctx, id, e, reading{from: from}, func(_ journal.Position, rec *journal.Record, after journal.Hash) error {
		return fn(rec, after)
	})
}

// Since reads the records behind a snapshot that Snapshot has returned: those
// after the place where it stands, which continue the chain at its link. Stands
// must not be zero.
func (h History) Since(ctx context.Context, id sharding.ShardID, e sharding.EntityID, s *journal.Snapshot,
	fn func(rec *journal.Record, after journal.Hash) error) error {
	return h.read(ctx, id, e, reading{from: s.Sequence, after: s.Stands, hash: s.Hash},
		func(_ journal.Position, rec *journal.Record, after journal.Hash) error { return fn(rec, after) })
}

// reading is which records of an entity are read: those that end at from or
// later and, if after is not zero, that lie behind it, where the link is hash.
type reading struct {
	from  journal.Sequence
	after journal.Position
	hash  journal.Hash
}

func (m *Machine) read(ctx context.Context, id sharding.ShardID, e sharding.EntityID, r reading, fn visit) error {
	s, err := m.snapshot(id, e)
	if err != nil {
		return fmt.Errorf("read entity in shard %d: %w", id, err)
	}
	defer s.view.Close()
	if !s.exists || r.from > s.Sequence {
		return nil
	}
	f := &follower{ctx: ctx, end: s.Last, fn: fn}
	if err := f.begin(s.Cut, r.from); err != nil {
		return err
	}
	if r.after != (journal.Position{}) {
		f.started, f.at, f.seq, f.hash = true, r.after, r.from, r.hash
	}
	if !f.started || f.at != s.Last {
		err = s.walk(f)
	}
	if err == nil && (f.at != s.Last || f.seq != s.Sequence || f.hash != s.Hash) {
		err = damagedHistory("its records do not reach its head")
	}
	if err != nil && f.failed == nil {
		return fmt.Errorf("read entity in shard %d: %w", id, err)
	}
	return err
}

// walk gives the follower the store's packs, unless the overlay has all that
// is wanted, and then the overlay.
func (s *snapshot) walk(f *follower) error {
	need, err := s.needStore(f)
	if err != nil {
		return err
	}
	if need {
		prefix := append(store.AppendPrefix(make([]byte, 0, 32+len(s.key)), s.shard, s.generation, store.ClassRecord), s.key...)
		start := store.AppendRecordSuffix(prefix[:len(prefix):len(prefix)], f.from, f.at)
		if err := s.view.Scan(prefix, start, func(_, body []byte) error { return f.pack(body) }); err != nil {
			return err
		}
		if f.failed != nil {
			return f.failed
		}
	}
	if s.first == nil {
		return nil
	}
	if f.started && f.at.Less(s.base) {
		return damagedHistory("records are missing before the newest")
	}
	for r := s.first; ; r = r.next {
		if gap, err := f.record(r.at, r.raw); err != nil || gap {
			if gap {
				err = damagedHistory("records are missing before the newest")
			}
			return err
		}
		if r == s.last {
			return nil
		}
	}
}

func (s *snapshot) needStore(f *follower) (bool, error) {
	if s.first == nil {
		return true, nil
	}
	if f.started {
		return f.at.Less(s.base), nil
	}
	if err := f.view.Parse(s.first.raw); err != nil {
		return false, err
	}
	return f.view.Expected >= f.from, nil
}

type visit func(at journal.Position, rec *journal.Record, after journal.Hash) error

// follower goes forward through an entity's records from packs that may
// overlap, and lets through what comes next.
type follower struct {
	ctx     context.Context
	from    journal.Sequence
	end     journal.Position // nothing after it is wanted
	fn      visit
	failed  error // of fn or ctx
	started bool  // at, seq and hash are those of the last record, or of none
	at      journal.Position
	seq     journal.Sequence
	hash    journal.Hash

	chain journal.Chain
	view  journal.RecordView
	rec   journal.Record
}

func (f *follower) pack(body []byte) error {
	p, err := store.OpenPack(body)
	if err != nil {
		return err
	}
	if f.started && f.at.Less(p.Previous) {
		return nil // it leaves something out: another pack has that
	}
	if !f.started {
		p.SkipBefore(f.from)
	}
	for {
		at, raw, err := p.Next()
		if err != nil || raw == nil {
			return err
		}
		if f.end.Less(at) {
			return store.ErrStop
		}
		if gap, err := f.record(at, raw); gap || err != nil {
			return err
		}
	}
}

// record takes one record; gap means that it starts beyond what is wanted
// first.
func (f *follower) record(at journal.Position, raw []byte) (gap bool, err error) {
	if f.started && !f.at.Less(at) {
		return false, nil
	}
	if err := f.view.Parse(raw); err != nil {
		return false, err
	}
	if !f.started {
		if f.view.Last() < f.from {
			return false, nil
		}
		if f.view.Expected >= f.from {
			return true, nil
		}
		f.started, f.seq, f.hash = true, f.view.Expected, f.view.Prev
	}
	if f.view.Expected != f.seq || f.view.Prev != f.hash {
		return false, damagedHistory("a record does not follow the one before it")
	}
	f.at, f.seq, f.hash = at, f.view.Last(), f.chain.AfterView(f.hash, &f.view)
	if err := f.rec.Decode(raw); err != nil {
		return false, err
	}
	if f.failed = f.ctx.Err(); f.failed == nil {
		f.failed = f.fn(at, &f.rec, f.hash)
	}
	return false, f.failed
}

func damagedHistory(what string) error {
	return &store.DamageError{Where: "the history of an entity", What: what,
		Action: "run hostd verify on the stopped node"}
}
