package rows

import (
	"fmt"

	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/store"
)

// Classes are the classes of rows that are tracked individually, and the
// metadata. They are scanned at each start.
var Classes = []store.Class{
	store.ClassMeta, store.ClassEntity, store.ClassTimer, store.ClassOutbox, store.ClassInbox, store.ClassCount, store.ClassDeadLetter, store.ClassImport, store.ClassRun,
}

// Learner collects the rows in the store at the start of a generation.
type Learner struct {
	hasher store.RowHasher
	sums   store.Sums
	// timers is the checksum of the due-time rows that must exist, given the
	// timers found in entity rows and in timer rows.
	timers store.Sum
	due    []byte
	life   []byte
}

// Learn adds a row.
func (l *Learner) Learn(k *Known, row store.Key, body []byte) error {
	group, ok := store.SumOf(row)
	if !ok {
		return nil
	}
	var hash store.RowHash
	switch row.Class {
	case store.ClassEntity:
		h, err := store.DecodeHead(body)
		if err != nil {
			return err
		}
		entity := string(row.Suffix)
		hash = l.hasher.Head(entity, &h)
		k.CountTimers(entity, &h)
		if h.Owes() {
			k.Owe(entity, &h)
		}
		if len(h.Set) > 0 {
			l.life = store.AppendLife(append(l.life[:0], entity...), h.Life)
		}
		for name, due := range h.Set.All {
			l.timer(k, due, l.life, name)
		}
	case store.ClassTimer:
		due, err := store.DecodeDue(body)
		if err != nil {
			return err
		}
		hash = l.hasher.Row(row.Class, row.Suffix, body)
		l.timer(k, due, row.Suffix, "")
	default:
		hash = l.hasher.Row(row.Class, row.Suffix, body)
	}
	l.sums[group].Add(hash)
	switch row.Class {
	case store.ClassDue:
		return nil
	case store.ClassMeta:
		if k.meta == nil {
			k.meta = make(map[string]store.RowHash)
		}
		k.meta[string(row.Suffix)] = hash
		return nil
	}
	if t := k.tally(row.Class); t != nil {
		t.change(itemSlot(row.Suffix), true)
	}
	k.set.add(k.place(&l.hasher, row.Class, row.Suffix), hash.Tag())
	return nil
}

func (l *Learner) timer(k *Known, due int64, key []byte, name string) {
	k.dues.change(DueSlot(due), true)
	l.due = append(append(store.AppendDue(l.due[:0], due), key...), name...)
	l.timers.Add(l.hasher.Row(store.ClassDue, l.due, nil))
}

// Open reads the rows of a generation and compares them with the checksums in
// its applied record. A record written by an earlier release has no checksums,
// and gets the checksums of the found rows.
func (k *Known) Open(view kv.View, mark *store.Applied) error {
	k.sums, k.stored = mark.Sums, mark.Sums
	var l Learner
	for _, class := range Classes {
		if err := k.Each(view, class, func(row store.Key, body []byte) error { return l.Learn(k, row, body) }); err != nil {
			return err
		}
	}
	l.sums[store.SumDue] = l.timers // these rows are read when they are due
	return l.Finish(k, mark)
}

// Finish compares the rows found with the applied record, and passes them to k.
func (l *Learner) Finish(k *Known, mark *store.Applied) error {
	what := ""
	switch {
	case mark.Summed:
		what = l.sums.Differ(&mark.Sums)
	case l.sums[store.SumHeads].Rows != mark.Heads:
		what = fmt.Sprintf("entity rows: found %d, expected %d", l.sums[store.SumHeads].Rows, mark.Heads)
	}
	if what == "" && l.timers != l.sums[store.SumDue] {
		what = fmt.Sprintf("due timers: found %d, expected %d, or with different contents", l.sums[store.SumDue].Rows, l.timers.Rows)
	}
	k.sums, k.stored, mark.Sums = l.sums, l.sums, l.sums
	if what == "" {
		return nil
	}
	return &store.DamageError{Where: fmt.Sprintf("shard %d", k.Shard), What: "rows are missing or differ from the written ones: " + what, Action: ActionReplace}
}
