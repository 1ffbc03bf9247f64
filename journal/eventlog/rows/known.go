// Package rows knows which rows the store has of a shard, and what they hold:
// the store's absence is no proof, since a block that goes bad hides its rows,
// or shows what they were before. It has no goroutine and no lock: what is
// known of a shard belongs to whoever applies its log.
package rows

import (
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Known is what is known of the rows of one generation of a shard:
//
//   - which rows there are that are looked up one at a time, and what each holds:
//     a set, filled by a scan at the start and kept up with what is applied;
//   - how many rows there are of each group, and their sum: store.Sums, part of
//     the applied mark;
//   - how many timers, messages and dead letters there are in parts of their order.
//
// A row that the store does not find, or finds otherwise than it was written,
// is damage: the shard stops on this node.
//
// Only the applying goroutine changes it, under a lock that all others hold who
// look something up.
type Known struct {
	Shard      sharding.ShardID
	Generation uint32

	seed        uint64
	damaged     func(error) error
	set         set                      // of the rows that are looked up, those in no overlay
	meta        map[string]store.RowHash // of the metadata machine's pairs
	dues        tally                    // of timers, by their slots
	messages    tally                    // of the outbox, by index
	deadLetters tally                    // likewise
	owing       owing
	many        map[string]store.Head // timers of entities that have at least ManyTimers
	sums        store.Sums            // as of what is applied
	stored      store.Sums            // as of what the store holds
}

// New is what is known of a generation without rows. The seed keys the hashes
// by which rows are known again. damaged is told of damage, from any goroutine,
// and returns it.
func New(shard sharding.ShardID, generation uint32, seed uint64, damaged func(error) error) *Known {
	return &Known{Shard: shard, Generation: generation, seed: seed, damaged: damaged}
}

// Sums are those of the rows as of what is applied.
func (k *Known) Sums() *store.Sums { return &k.sums }

// Flushed is told that the store holds what was applied when the sums were
// these.
func (k *Known) Flushed(sums *store.Sums) { k.stored = *sums }

// Met has the shard stopped if an error of a read of it is damage, and returns
// the error. There may be no shard.
func (k *Known) Met(err error) error {
	if k != nil && errors.Is(err, journal.ErrDamaged) {
		return k.damaged(err)
	}
	return err
}

// Damaged has the shard stopped, and returns the cause.
func (k *Known) Damaged(cause error) error { return k.damaged(cause) }

// Place is that of a row in the set.
func (k *Known) Place(w *store.RowHasher, class store.Class, rest []byte) uint64 {
	return w.Place(k.seed, class, rest)
}

// Replace puts a row in the place of what was there.
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
		panic(fmt.Sprintf("eventlog: shard %d changes a row that it does not know", k.Shard))
	}
	k.changeSum(group, old, had, now, has)
}

// changeSum changes the sum of a group whose rows are not known one at a time.
func (k *Known) changeSum(group store.SumClass, old store.RowHash, had bool, now store.RowHash, has bool) {
	sum := &k.sums[group]
	if had {
		sum.Take(old)
	}
	if has {
		sum.Add(now)
	}
}

// tally returns that of a class, nil for one that has none.
func (k *Known) tally(class store.Class) *tally {
	switch class {
	case store.ClassOutbox:
		return &k.messages
	case store.ClassDeadLetter:
		return &k.deadLetters
	}
	return nil
}

// itemSlot is the index of the entry that made a message or a dead letter.
func itemSlot(rest []byte) int64 {
	id, _ := store.DecodeItemID(rest) // one that is none is refused where it is read
	return int64(id.Index)
}

// ExpectItems is Expect for the messages, or the dead letters, that entries of
// these indexes have made.
func (k *Known) ExpectItems(class store.Class, from, to int64) *Expected {
	return k.tally(class).expect(from, to)
}

// ExpectDue returns what a scan of timers has to meet, by their due times.
func (k *Known) ExpectDue(from, by int64) *Expected {
	return k.dues.expect(DueSlot(from), DueSlot(by))
}

// Missing has the shard stopped because a scan did not meet all that there is.
func (k *Known) Missing(class store.Class) error {
	key := store.AppendPrefix(nil, k.Shard, k.Generation, class)
	return k.damaged(&store.DamageError{
		Where: store.DescribeKey(key), What: "rows are missing, or are there that were never written or were taken away", Action: ActionReplace,
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
