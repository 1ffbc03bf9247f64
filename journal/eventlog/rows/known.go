// Package rows tracks which rows of a shard the store must have, and checksums
// of their contents. It is needed because a lookup that finds nothing proves
// nothing: a damaged block may hide its rows or show earlier versions of them.
// The package has no goroutine and no lock; the state of a shard belongs to the
// goroutine that applies its log.
package rows

import (
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Known holds the knowledge about the rows of one generation of a shard:
//
//   - The rows that are looked up individually, with a tag of their contents: a
//     set that is filled by a scan at the start and updated by applied entries.
//   - The number and the checksum of the rows of each group: store.Sums, which is
//     part of the applied record.
//   - The number of timers, messages and dead letters in ranges of their order.
//
// If the store does not find a row or returns different contents, that is
// damage and the shard stops on this node.
//
// Only the applying goroutine changes it, under a lock that is held for every
// lookup.
type Known struct {
	Shard      sharding.ShardID
	Generation uint32

	seed        uint64
	damaged     func(error) error
	set         set                      // rows that are looked up individually and not in the memtable
	meta        map[string]store.RowHash // hashes of the metadata state machine's pairs
	dues        tally                    // of timers, by slot
	messages    tally                    // of the outbox, by index
	deadLetters tally                    // of dead letters, by index
	owing       owing
	many        map[string]store.Head // timer counts of entities with at least ManyTimers
	sums        store.Sums            // checksums at the applied index
	stored      store.Sums            // checksums at the index that the store has
}

// New returns a Known for a generation without rows. The seed is the key of the
// hashes that identify rows. damaged is called for damage, from any goroutine,
// and returns its argument.
func New(shard sharding.ShardID, generation uint32, seed uint64, damaged func(error) error) *Known {
	return &Known{Shard: shard, Generation: generation, seed: seed, damaged: damaged}
}

// Sums returns the checksums of the rows at the applied index.
func (k *Known) Sums() *store.Sums { return &k.sums }

// MarkFlushed must be called when the store has the state with these checksums.
func (k *Known) MarkFlushed(sums *store.Sums) { k.stored = *sums }

// If err is damage, NoteDamage requests that the shard is stopped. It returns
// err. k may be nil.
func (k *Known) NoteDamage(err error) error {
	if k != nil && errors.Is(err, journal.ErrDamaged) {
		return k.damaged(err)
	}
	return err
}

// ReportDamage requests that the shard is stopped, and returns the cause.
func (k *Known) ReportDamage(cause error) error { return k.damaged(cause) }

// place returns the hash that identifies a row in the set.
func (k *Known) place(w *store.RowHasher, class store.Class, rest []byte) uint64 {
	return w.Place(k.seed, class, rest)
}

// Replace replaces a row.
func (k *Known) Replace(group store.SumClass, place uint64, old store.RowHash, had bool, now store.RowHash, has bool) {
	whole := true
	switch {
	case had && has:
		whole = k.set.change(place, old.Tag(), now.Tag())
	case had:
		whole = k.set.remove(place, old.Tag())
	case has:
		k.set.add(place, now.Tag())
	}
	if !whole {
		panic(fmt.Sprintf("eventlog: shard %d changes an untracked row", k.Shard))
	}
	k.changeSum(group, old, had, now, has)
}

// changeSum updates the checksum of a group whose rows are not tracked
// individually.
func (k *Known) changeSum(group store.SumClass, old store.RowHash, had bool, now store.RowHash, has bool) {
	sum := &k.sums[group]
	if had {
		sum.Take(old)
	}
	if has {
		sum.Add(now)
	}
}

// tally returns the tally of a class, nil if it has none.
func (k *Known) tally(class store.Class) *tally {
	switch class {
	case store.ClassOutbox:
		return &k.messages
	case store.ClassDeadLetter:
		return &k.deadLetters
	}
	return nil
}

// itemSlot returns the index of the entry that created a message or a dead
// letter.
func itemSlot(rest []byte) int64 {
	id, _ := store.DecodeItemID(rest) // an invalid id is rejected when it is read
	return int64(id.Index)
}

// ExpectItems returns the places that a scan must find: the messages or dead
// letters that were created by entries with indexes in the given range.
func (k *Known) ExpectItems(class store.Class, from, to int64) *Expected {
	return k.tally(class).expect(from, to)
}

// ExpectDue returns the places that a scan must find: the timers with due times
// in the given range.
func (k *Known) ExpectDue(from, by int64) *Expected {
	return k.dues.expect(DueSlot(from), DueSlot(by))
}

// ReportMissing requests that the shard is stopped because a scan did not find
// all rows.
func (k *Known) ReportMissing(class store.Class) error {
	key := store.AppendPrefix(nil, k.Shard, k.Generation, class)
	return k.damaged(&store.DamageError{
		Where: store.DescribeKey(key), What: "rows are missing, or deleted or never written rows exist", Action: ActionReplace,
	})
}

// Each calls fn for the rows of a class.
func (k *Known) Each(view kv.View, class store.Class, fn func(key store.Key, body []byte) error) error {
	return view.Scan(store.AppendPrefix(nil, k.Shard, k.Generation, class), nil, func(key, body []byte) error {
		parsed, err := store.ParseKey(key)
		if err != nil {
			return err
		}
		return fn(parsed, body)
	})
}
