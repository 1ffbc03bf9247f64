// Package outbox is what a shard has of messages between entities: those that
// wait for their acknowledgement and dead letters, by the entry that made them,
// and numbers, by the entities that they are counted for. All are pairs of the
// store, kept in memory on their way there:
//
//	Stage ─Commit─▶ fresh ─Take─▶ taken ─Flushed─▶ store
//
// Entries are judged against them through a Stage, which is thrown away when an
// entry is refused. It has no goroutine and no lock of its own.
package outbox

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
)

// Box is what one generation of a shard has of messages and is not in the store
// yet, and its totals. Only the applying goroutine changes it, under the lock
// that readers hold.
type Box struct {
	rows         *rows.Known
	fresh, taken layer
	totals       journal.MessageTotals
}

// NewBox is the empty box of a shard whose rows are these.
func NewBox(known *rows.Known) *Box { return &Box{rows: known} }

// layer is changed pairs, under their class and the rest of their key.
type layer struct {
	pairs map[string]change
	// outbox and deadLetters are the keys of those classes in the order they
	// were made, which is theirs, with some that are gone.
	outbox, deadLetters []string
}

// change is a pair as it is now; without a value it is gone.
type change struct {
	value []byte
	below bool // the layer below has it

	// As of before the entry: whether there was one, and its hash.
	had bool
	was store.RowHash
}

// Totals are those of the messages and dead letters.
func (b *Box) Totals() journal.MessageTotals { return b.totals }

// Open reads the totals from the store.
func (b *Box) Open(view kv.View) error {
	_, err := view.Get(store.AppendPrefix(nil, b.rows.Shard, b.rows.Generation, store.ClassCount), func(body []byte) (err error) {
		b.totals, err = store.DecodeTotals(body)
		return err
	})
	return err
}

// Check compares the totals with the rows that they are of.
func (b *Box) Check() error {
	t, sums := &b.totals, b.rows.Sums()
	if messages, deadLetters := sums[store.SumOutbox].Rows, sums[store.SumDeadLetters].Rows; t.Messages != messages || t.DeadLetters != deadLetters {
		return &store.DamageError{Where: fmt.Sprintf("shard %d", b.rows.Shard), Action: rows.ActionReplace, What: fmt.Sprintf(
			"%d sends and %d dead letters; its totals say %d and %d", messages, deadLetters, t.Messages, t.DeadLetters)}
	}
	return nil
}

// Changes are the pairs that a batch takes to the store.
type Changes map[string]change

// Take hands the fresh pairs to a batch.
func (b *Box) Take() Changes {
	b.taken, b.fresh = b.fresh, layer{}
	return b.taken.pairs
}

// Flushed is told that what was taken is in the store.
func (b *Box) Flushed() { b.taken = layer{} }

// Put writes the pairs in the order of their keys. scratch is used again.
func (b *Box) Put(kvs *store.Batch, changes Changes, scratch []string) []string {
	keys := scratch[:0]
	for key := range changes {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		c := changes[key]
		full := append(store.AppendPrefix(kvs.Key(), b.rows.Shard, b.rows.Generation, store.Class(key[0])), key[1:]...)
		if c.value == nil {
			kvs.Delete(full)
		} else {
			kvs.Put(full, c.value)
		}
	}
	return keys
}
