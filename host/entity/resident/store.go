package resident

import "github.com/hostd/hostd/sharding"

// An entity hibernates when it is in memory and was not used recently. The
// executor then keeps a record of bytes for it instead of Go objects. The
// record is on a page of its type's log, in memory that the garbage collector
// does not scan, and its shard's Table finds it by name.
//
// An executor may have millions of entities in memory, most of them idle. As Go
// objects they would cost the garbage collector time in every cycle and several
// times the memory. Passivating them would cost a load on their next request. A
// hibernated entity keeps its state in its guest, so it wakes up without I/O
// and without a guest call.
//
// An entity is either an object in a Directory or a record in a Table, never
// both. A log has its records in the order of the entities' last use, because
// a record is appended when its entity hibernates and entities hibernate in
// about that order. So the records of the least recently used entities are at
// the beginning of the log. Forgotten records leave gaps, which merging
// adjacent pages bounds.

// Owner holds the tables that refer to a Store's records.
type Owner interface {
	// Table returns the table of a shard.
	Table(sharding.ShardID) *Table
	// OnMove is called when the record of an entity moves to another slot.
	OnMove(instance, handle uint32, to Slot)
}

// Store holds the hibernated entities of an executor. T identifies an
// activation of an entity type.
type Store[T comparable] struct {
	owner Owner
	pages pages[T]
}

// NewStore returns an empty store.
func NewStore[T comparable](owner Owner) *Store[T] { return &Store[T]{owner: owner} }

// at returns the bytes that begin at a slot.
func (s *Store[T]) at(p Slot) record { return s.pages.at(p.page()).mem[p.offset():] }

// Put appends a record of an entity to its type's log. It returns 0 if there is
// no memory.
func (s *Store[T]) Put(log *Log[T], activation T, d *Hibernated) Slot {
	p, rec := s.room(log, d.ID.Type, recordBytes(d))
	if rec == nil {
		return 0
	}
	rec.put(d, log.kind(activation))
	s.keep(s.owner.Table(d.Shard), p)
	return p
}

// Take removes a record and returns its entity and the entity's activation.
func (s *Store[T]) Take(p Slot) (d Hibernated, activation T) {
	d = s.at(p).open(s.Type(p))
	return d, s.Drop(p)
}

// Drop removes a record and returns the activation of its entity.
func (s *Store[T]) Drop(p Slot) (activation T) {
	pg, rec := s.pages.at(p.page()), s.at(p)
	log := pg.log
	s.drop(s.owner.Table(rec.shard()), p)
	activation = log.leave(rec.kind())
	s.forget(log, pg, rec)
	return activation
}

// Type is the entity type of a record.
func (s *Store[T]) Type(p Slot) string { return s.pages.at(p.page()).log.typ }

// First returns the least recently used record of a log and when it was last
// used, or 0 if the log is empty.
func (s *Store[T]) First(log *Log[T]) (p Slot, touched Tick) {
	p, rec := s.firstOf(log)
	if rec == nil {
		return 0, 0
	}
	return p, rec.lastUse()
}

// Oldest calls fn with at most the first n records of a log and their keys.
func (s *Store[T]) Oldest(log *Log[T], n int, fn func(p Slot, key uint32)) {
	for p, rec := range s.oldestOf(log, n) {
		fn(p, rec.key())
	}
}

// Bytes is the memory of the pages.
func (s *Store[T]) Bytes() int64 { return s.pages.bytes() }

// Live is the number of bytes of live records.
func (s *Store[T]) Live() (bytes int64) {
	for _, pg := range s.pages.all {
		if pg != nil {
			bytes += int64(pg.live)
		}
	}
	return bytes
}

// Close frees all pages. The caller must not use its logs and tables
// afterwards.
func (s *Store[T]) Close() { s.pages.closeAll() }
