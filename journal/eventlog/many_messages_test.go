package eventlog_test

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
)

// Reads return all unflushed messages and dead letters of a shard, however many
// there are.
func TestReadsReturnAllUnflushedMessages(t *testing.T) {
	const records, each = 6, 1000
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	a := &alarms{T: t, m: openMachine(t, st, 0, eventlog.Options{}), st: st, id: "a"}
	for n := range records {
		var ops []byte
		for range each {
			ops = journal.AppendMessageOp(ops, &journal.MessageOp{Type: []byte("t"), ID: []byte("b"), Command: []byte("pay")})
		}
		a.apply(journal.Section{Kind: journal.SectionMessages, Data: ops})
		if n == 0 {
			flush(t, a.m, st)
		}
	}
	var sent []journal.ItemID
	see := func(to *[]journal.ItemID, id journal.ItemID) {
		if n := len(*to); n > 0 && !(*to)[n-1].Less(id) {
			t.Fatalf("%v comes after %v", id, (*to)[n-1])
		}
		*to = append(*to, id)
	}
	if err := a.m.Outbox(t.Context(), 1, journal.ItemID{}, func(m *journal.Message) error { see(&sent, m.ID); return nil }); err != nil || len(sent) != records*each {
		t.Fatalf("read %d messages of %d: %v", len(sent), records*each, err)
	}
	steps := journal.AppendEntryHeader(nil, journal.EntryOutbox, 1, 1)
	for _, id := range sent {
		steps = journal.AppendOutboxOp(steps, &journal.OutboxOp{Kind: journal.OutboxGivenUp, ID: id, At: 7, Code: []byte("not_found"), Message: []byte("no such type"), Answer: []byte("{}")})
	}
	if v := apply1(a.m, 1, journal.Committed{Index: a.index + 1, Term: 1, Data: steps}); v.Err != nil {
		t.Fatal(v.Err)
	}
	var stopped, dead []journal.ItemID
	if err := a.m.DeadLetters(t.Context(), 1, journal.ItemID{}, func(l *journal.DeadLetter) error { see(&dead, l.ID); return nil }); err != nil || len(dead) != records*each {
		t.Fatalf("read %d dead letters of %d: %v", len(dead), records*each, err)
	}
	err := a.m.DeadLetters(t.Context(), 1, journal.ItemID{}, func(l *journal.DeadLetter) error {
		if see(&stopped, l.ID); len(stopped) == records*each-1 {
			return eventlog.ErrStopReading
		}
		return nil
	})
	if err != nil || len(stopped) != records*each-1 {
		t.Fatalf("stopped after %d dead letters: %v", len(stopped), err)
	}
	err = a.m.Outbox(t.Context(), 1, journal.ItemID{Index: math.MaxUint64}, func(*journal.Message) error { t.Error("a message is left"); return nil })
	if err != nil {
		t.Fatal(err)
	}
}

// A reader that resumes after a message, or stops at a message, gets an error
// if the store hides another message of the same entry. Otherwise the hidden
// message would be skipped and block its channel forever.
func TestHiddenMessagesAreDamage(t *testing.T) {
	const each = 5
	for behind := range each {
		for hidden := range each {
			st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
			a := &alarms{T: t, m: openMachine(t, st, 0, eventlog.Options{}), st: st, id: "a"}
			var ops []byte
			for range each {
				ops = journal.AppendMessageOp(ops, &journal.MessageOp{Type: []byte("t"), ID: []byte("b"), Command: []byte("pay")})
			}
			for range 3 {
				a.apply(journal.Section{Kind: journal.SectionMessages, Data: ops})
			}
			flush(t, a.m, st)
			rows, err := rowsOf(st, st.MaxVersion(), 1, store.ClassOutbox)
			if err != nil || len(rows) != 3*each {
				t.Fatalf("%d messages: %v", len(rows), err)
			}
			var ids []journal.ItemID
			if err := a.m.Outbox(t.Context(), 1, journal.ItemID{}, func(m *journal.Message) error { ids = append(ids, m.ID); return nil }); err != nil {
				t.Fatal(err)
			}
			begin := each + behind // index of a message of the second entry
			after := ids[begin-1]
			read := func(m *eventlog.Machine, stop int) (got []journal.ItemID, err error) {
				err = m.Outbox(t.Context(), 1, after, func(m *journal.Message) error {
					if got = append(got, m.ID); len(got) == stop {
						return eventlog.ErrStopReading
					}
					return nil
				})
				return got, err
			}
			for _, stop := range []int{0, 1} {
				want := ids[begin:]
				if stop > 0 {
					want = want[:stop]
				}
				if got, err := read(a.m, stop); err != nil || !slices.Equal(got, want) {
					t.Fatalf("after %v, stopping after %d: got %v, %v", after, stop, got, err)
				}
				l := &liar{st, map[string][]byte{}}
				m, err := eventlog.OpenOn(l, st.MaxVersion(), eventlog.Options{})
				if err == nil {
					err = m.SetRecoveryTargets(nil)
				}
				if err != nil {
					t.Fatal(err)
				}
				l.lies[string(rows[each+hidden].key)] = nil
				if got, err := read(m, stop); !errors.Is(err, journal.ErrDamaged) || len(got) > 0 {
					t.Errorf("%d of an entry is hidden: who reads behind %d of it and stops after %d gets %d messages, %v", hidden, behind, stop, len(got), err)
				}
			}
		}
	}
}
