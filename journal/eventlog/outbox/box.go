// Package outbox holds a shard's messages between entities: unacknowledged
// messages and dead letters, keyed by the entry that created them, and sequence
// numbers, keyed by channel. All of them are pairs of the store, kept in memory
// on their way there:
//
//	Stage ─Commit─▶ fresh ─Take─▶ taken ─MarkFlushed─▶ store
//
// Entries are checked against these pairs in a Stage, whose changes are
// discarded if an entry is rejected. The package has no goroutine and no lock
// of its own.
package outbox

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
)

// Box has, for one generation of a shard, the message state that is not in the
// store yet, and the totals of all messages. Only the applying goroutine
// changes it, under the lock that readers hold.
type Box struct {
	rows         *rows.Known
	fresh, taken layer
	totals       journal.MessageTotals
}

// NewBox returns an empty box for a shard with these rows.
func NewBox(known *rows.Known) *Box { return &Box{rows: known} }

// layer is a set of changed pairs, keyed by class and the rest of the key.
type layer struct {
	pairs map[string]change
	// outbox and deadLetters are the keys of these classes in creation order,
	// which is key order. They may include keys of deleted items.
	outbox, deadLetters []string
	// runs are the changed keys of the index of open runs. They may repeat.
	runs []string
}

// change is the new state of a pair. A nil value means that the pair is
// deleted.
type change struct {
	value []byte
	below bool // the layer below this one has the pair

	// had reports whether the pair existed before the entry, and was is its
	// hash before the entry.
	had bool
	was store.RowHash
}

// Totals returns the totals of messages and dead letters.
func (b *Box) Totals() journal.MessageTotals { return b.totals }

// Open reads the totals from the store.
func (b *Box) Open(view kv.View) error {
	_, err := view.Get(store.AppendPrefix(nil, b.rows.Shard, b.rows.Generation, store.ClassCount), func(body []byte) (err error) {
		b.totals, err = store.DecodeTotals(body)
		return err
	})
	return err
}

// Check compares the totals with the number of rows.
func (b *Box) Check() error {
	t, sums := &b.totals, b.rows.Sums()
	if messages, deadLetters := sums[store.SumOutbox].Rows, sums[store.SumDeadLetters].Rows; t.Messages != messages || t.DeadLetters != deadLetters {
		return &store.DamageError{Where: fmt.Sprintf("shard %d", b.rows.Shard), Action: rows.ActionReplace, What: fmt.Sprintf(
			"found %d messages and %d dead letters, but the stored totals are %d and %d", messages, deadLetters, t.Messages, t.DeadLetters)}
	}
	return nil
}

// Changes are the pairs that a batch writes to the store.
type Changes map[string]change

// Take passes the fresh pairs to a batch.
func (b *Box) Take() Changes {
	b.taken, b.fresh = b.fresh, layer{}
	return b.taken.pairs
}

// MarkFlushed must be called when the taken pairs are in the store.
func (b *Box) MarkFlushed() { b.taken = layer{} }

// Put writes the pairs in key order. scratch is reused.
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
