package resident

import "github.com/hostd/hostd/sharding"

// An entity that is in memory and that nobody has asked for of late is dormant:
// what the executor knows of it is a record of bytes, outside of what the collector
// sees, on pages of its type's log, and its shard's table finds it by name.

// Owner is who has the tables that a Store's records are in.
type Owner interface {
	// Table is a shard's.
	Table(sharding.ShardID) *Table
	// Moved tells where the record of an entity lies now.
	Moved(instance, handle uint32, to Slot)
}

// Store is the dormant entities of an executor; T is what their types are bound to.
type Store[T comparable] struct {
	owner Owner
	pages pages[T]
}

// NewStore returns an empty store.
func NewStore[T comparable](owner Owner) *Store[T] { return &Store[T]{owner: owner} }

// at returns the bytes from a slot on.
func (s *Store[T]) at(p Slot) record { return s.pages.at(p.page()).mem[p.offset():] }

// Put makes a record of an entity at the end of its type's log. It returns 0
// when there is no memory for it.
func (s *Store[T]) Put(log *Log[T], bound T, d *Dormant) Slot {
	p, rec := s.room(log, d.ID.Type, recordBytes(d))
	if rec == nil {
		return 0
	}
	rec.put(d, log.kind(bound))
	s.keep(s.owner.Table(d.Shard), p)
	return p
}

// Take returns the entity of a record and what its type is bound to, and
// forgets the record.
func (s *Store[T]) Take(p Slot) (d Dormant, bound T) {
	d = s.at(p).open(s.Type(p))
	return d, s.Drop(p)
}

// Drop forgets a record, and returns what its type was bound to.
func (s *Store[T]) Drop(p Slot) (bound T) {
	pg, rec := s.pages.at(p.page()), s.at(p)
	log := pg.log
	s.drop(s.owner.Table(rec.shard()), p)
	bound = log.leave(rec.kind())
	s.forget(log, pg, rec)
	return bound
}

// Type is the entity type of a record.
func (s *Store[T]) Type(p Slot) string { return s.pages.at(p.page()).log.typ }

// First is the record of a log that was asked for longest ago, and when that
// was; 0 for none.
func (s *Store[T]) First(log *Log[T]) (p Slot, touched Tick) {
	p, rec := s.firstOf(log)
	if rec == nil {
		return 0, 0
	}
	return p, rec.touched()
}

// Oldest calls fn with the first records of a log and their keys, at most n.
func (s *Store[T]) Oldest(log *Log[T], n int, fn func(p Slot, key uint32)) {
	for p, rec := range s.oldestOf(log, n) {
		fn(p, rec.key())
	}
}

// Bytes is how much memory the pages take.
func (s *Store[T]) Bytes() int64 { return s.pages.bytes() }

// Live is how many bytes of the pages records lie on.
func (s *Store[T]) Live() (bytes int64) {
	for _, pg := range s.pages.all {
		if pg != nil {
			bytes += int64(pg.live)
		}
	}
	return bytes
}

// Close gives all pages back. The logs and tables are the caller's to forget.
func (s *Store[T]) Close() { s.pages.closeAll() }
