package rows

import (
	"fmt"

	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/store"
)

// Lookup holds the knowledge about a row that is read from a view.
type Lookup struct {
	of    *Known
	known knownRow
	sum   store.Sum // of the row's group, as of the view
}

// Lookup returns the knowledge about a row. The caller holds the lock or is the
// applying goroutine.
func (k *Known) Lookup(w *store.RowHasher, class store.Class, rest []byte) Lookup {
	group, _ := store.SumOf(store.Key{Class: class, Suffix: rest})
	return Lookup{k, k.set.find(k.place(w, class, rest)), k.stored[group]}
}

// IsAbsent reports whether the row does not exist, whatever a store returns for
// it.
func (l *Lookup) IsAbsent() bool { return l.known.n == 0 }

// ReadHead reads the entity row that was looked up and checks it. It does not
// read a row that is known to be absent.
func (l *Lookup) ReadHead(w *store.RowHasher, view kv.View, entity []byte) (h store.Head, exists bool, err error) {
	if l.IsAbsent() {
		return h, false, nil
	}
	key := append(store.AppendPrefix(make([]byte, 0, 16+len(entity)), l.of.Shard, l.of.Generation, store.ClassEntity), entity...)
	exists, err = view.Get(key, func(body []byte) error {
		h, err = store.DecodeHead(body)
		return err
	})
	if err != nil {
		return h, false, err
	}
	return h, exists, l.checkHead(w, view, entity, &h, exists)
}

// checkHead checks an entity row that was read, or not found, in the view.
func (l *Lookup) checkHead(w *store.RowHasher, view kv.View, entity []byte, h *store.Head, found bool) error {
	var hash store.RowHash
	if found {
		hash = w.Head(string(entity), h)
	}
	return l.check(view, store.ClassEntity, entity, hash, found)
}

// CheckRow checks any other row that was read, or not found, in the view.
func (l *Lookup) CheckRow(w *store.RowHasher, view kv.View, class store.Class, rest, body []byte, found bool) error {
	var hash store.RowHash
	if found {
		hash = w.Row(class, rest, body)
	}
	return l.check(view, class, rest, hash, found)
}

func (l *Lookup) check(view kv.View, class store.Class, rest []byte, hash store.RowHash, found bool) error {
	switch {
	case found && l.known.has(hash.Tag()), !found && l.known.n == 0:
		return nil
	case !found:
		return l.checkMissing(view, class, rest)
	}
	what := "the row differs from its last written value"
	if l.known.n == 0 {
		what = "the row exists although it was deleted or never written"
	}
	key := store.AppendPrefix(nil, l.of.Shard, l.of.Generation, class)
	return l.of.damaged(&store.DamageError{Where: store.DescribeKey(key), What: what, Action: ActionReplace})
}

// ActionReplace is the advice to operators about missing rows.
const ActionReplace = "replace the replica"

// checkMissing determines why a row is not found although it is known to exist.
// If the tables are intact and the checksum of all rows is right, nothing is
// missing: a different row happens to have the same hash.
func (l *Lookup) checkMissing(view kv.View, class store.Class, rest []byte) error {
	k := l.of
	key := append(store.AppendPrefix(nil, k.Shard, k.Generation, class), rest...)
	damage := &store.DamageError{Where: store.DescribeKey(key), What: "the row is missing", Action: ActionReplace}
	if strict, ok := view.(kv.StrictView); ok {
		found, err := strict.StrictGet(key)
		if err != nil {
			return k.damaged(fmt.Errorf("look for a missing row: %w", err))
		}
		if found {
			damage.What = "the row is in its table, but the store does not find it"
			return k.damaged(damage)
		}
	}
	sum, err := k.sumGroup(view, class)
	if err != nil {
		return k.damaged(err)
	}
	if sum == l.sum {
		return nil
	}
	damage.What = fmt.Sprintf("the row is missing, and others may be too: found %d of %d", sum.Rows, l.sum.Rows)
	return k.damaged(damage)
}

// groupClasses returns the classes of keys in the same group.
func groupClasses(class store.Class) []store.Class {
	switch class {
	case store.ClassCount, store.ClassImport, store.ClassRun:
		return []store.Class{store.ClassCount, store.ClassImport, store.ClassRun}
	}
	return []store.Class{class}
}

// sumGroup computes the checksum of the rows in a class's group, as of the
// view.
func (k *Known) sumGroup(view kv.View, class store.Class) (store.Sum, error) {
	var w store.RowHasher
	var sums store.Sums
	for _, c := range groupClasses(class) {
		if err := k.Each(view, c, func(row store.Key, body []byte) error { return w.AddTo(&sums, row, body) }); err != nil {
			return store.Sum{}, err
		}
	}
	group, _ := store.SumOf(store.Key{Class: class, Suffix: []byte{0}})
	return sums[group], nil
}
