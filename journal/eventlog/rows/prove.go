package rows

import (
	"fmt"

	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/store"
)

// Lookup is what is known of a row that is read from a view.
type Lookup struct {
	of    *Known
	known knownRow
	sum   store.Sum // of the row's group, as of the view
}

// Lookup returns what is known of a row. The caller holds the lock, or is the
// applying goroutine.
func (k *Known) Lookup(w *store.RowHasher, class store.Class, rest []byte) Lookup {
	group, _ := store.SumOf(store.Key{Class: class, Suffix: rest})
	return Lookup{k, k.set.find(k.Place(w, class, rest)), k.stored[group]}
}

// Absent reports that there is no such row, whatever a store finds in its place.
func (l *Lookup) Absent() bool { return l.known.n == 0 }

// ReadHead reads the head that was looked up, and checks it. One that is absent
// is not read.
func (l *Lookup) ReadHead(w *store.RowHasher, view kv.View, entity []byte) (h store.Head, exists bool, err error) {
	if l.Absent() {
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
	return h, exists, l.head(w, view, entity, &h, exists)
}

// head checks a head that was read, or not found, in the view.
func (l *Lookup) head(w *store.RowHasher, view kv.View, entity []byte, h *store.Head, found bool) error {
	var hash store.RowHash
	if found {
		hash = w.Head(string(entity), h)
	}
	return l.prove(view, store.ClassEntity, entity, hash, found)
}

// Row checks another row that was read, or not found, in the view.
func (l *Lookup) Row(w *store.RowHasher, view kv.View, class store.Class, rest, body []byte, found bool) error {
	var hash store.RowHash
	if found {
		hash = w.Row(class, rest, body)
	}
	return l.prove(view, class, rest, hash, found)
}

func (l *Lookup) prove(view kv.View, class store.Class, rest []byte, hash store.RowHash, found bool) error {
	switch {
	case found && l.known.has(hash.Tag()), !found && l.known.n == 0:
		return nil
	case !found:
		return l.proveAbsent(view, class, rest)
	}
	what := "it is not as it was written last"
	if l.known.n == 0 {
		what = "it is there, and was never written or was taken away"
	}
	key := store.AppendPrefix(nil, l.of.Shard, l.of.Generation, class)
	return l.of.damaged(&store.DamageError{Where: store.DescribeKey(key), What: what, Action: ActionReplace})
}

// ActionReplace is what is to be done about rows that are missing.
const ActionReplace = "the replica has to be replaced"

// proveAbsent looks why a row is not found that is known to be there. Where the
// tables are whole and all rows that there should be are, another row had the
// same place by chance.
func (l *Lookup) proveAbsent(view kv.View, class store.Class, rest []byte) error {
	k := l.of
	key := append(store.AppendPrefix(nil, k.Shard, k.Generation, class), rest...)
	damage := &store.DamageError{Where: store.DescribeKey(key), What: "it is missing", Action: ActionReplace}
	if strict, ok := view.(kv.StrictView); ok {
		found, err := strict.StrictGet(key)
		if err != nil {
			return k.damaged(fmt.Errorf("look for a missing row: %w", err))
		}
		if found {
			damage.What = "it is in its file, and is not found"
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
	damage.What = fmt.Sprintf("it is missing, and so may others be: %d are there of %d", sum.Rows, l.sum.Rows)
	return k.damaged(damage)
}

// groupClasses are the classes of keys that are in one group with a class.
func groupClasses(class store.Class) []store.Class {
	if class == store.ClassCount || class == store.ClassImport {
		return []store.Class{store.ClassCount, store.ClassImport}
	}
	return []store.Class{class}
}

// sumGroup sums the rows of a class's group up, as the view has them.
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
