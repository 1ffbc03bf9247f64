package eventlog_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// TestLoadWithoutEventsIsBounded checks that a load of an entity that never had
// an event reads about as many records as its window can hold, wherever they
// are stored, and not all records that the entity has ever had.
func TestLoadWithoutEventsIsBounded(t *testing.T) {
	const records, wanted, block = 3000, 40, 25
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	a := &alarms{T: t, m: openMachine(t, st, 0, eventlog.Options{}), st: st, id: "a"}
	check := func(where string) {
		t.Helper()
		read := 0
		skipped, err := eventlog.History{Machine: a.m}.ReadRecent(t.Context(), 1, sharding.EntityID{Type: "t", ID: a.id}, wanted, 1<<20, 1<<62, nil, func(*journal.Record, journal.Hash) error {
			read++
			return nil
		})
		if err != nil || !skipped || read <= wanted || read > wanted+2*block {
			t.Errorf("%s: %d of %d records were read, skipped %v, want about %d: %v", where, read, records, skipped, wanted, err)
		}
	}
	for n := range records {
		if n > 0 && n%block == 0 {
			flush(t, a.m, st)
		}
		a.apply()
	}
	check("the last ones in memory")
	flush(t, a.m, st)
	check("in the store")
	for range 2 * block {
		a.apply()
	}
	check("most in memory")
	for range block {
		a.apply()
	}
	check("all in memory")
}

// TestLoadOfTimerRecordsIsBounded loads an entity that has no events and whose
// timers fire. The load reads a bounded number of records and bytes, although
// no record of a timer counts toward the idempotency window. The records that
// the load reads only to find where to begin are charged, and an error of the
// charge ends the read.
func TestLoadOfTimerRecordsIsBounded(t *testing.T) {
	const records, block = 3000, 25
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	a := &alarms{T: t, m: openMachine(t, st, 0, eventlog.Options{}), st: st, id: "a"}
	a.set(1, "again") // the only command of a client
	for n := range int64(records) {
		if n > 0 && n%block == 0 {
			flush(t, a.m, st)
		}
		next := journal.AppendTimerOp(nil, journal.TimerOp{Name: []byte("again"), Due: n + 2, Command: []byte("ring")})
		a.apply(journal.Section{Kind: journal.SectionSource, Data: journal.AppendTimerSource(nil, journal.TimerSource{Name: []byte("again"), Due: n + 1})},
			journal.Section{Kind: journal.SectionTimers, Data: next})
	}
	load := func(commands, replyBytes int, step func(int) error) (read int, skipped bool, err error) {
		skipped, err = eventlog.History{Machine: a.m}.ReadRecent(t.Context(), 1, sharding.EntityID{Type: "t", ID: a.id}, commands, replyBytes, 1<<62, step, func(*journal.Record, journal.Hash) error {
			read++
			return nil
		})
		return read, skipped, err
	}
	all := 0
	for name, c := range map[string]struct{ commands, replyBytes, most int }{
		"by number": {40, 1 << 20, 4*40 + 2*block},
		"by size":   {1 << 20, 1000, 8*1000/20 + 2*block}, // a record has more than 20 bytes
	} {
		charged, bytes := 0, 0
		read, skipped, err := load(c.commands, c.replyBytes, func(size int) error {
			charged, bytes = charged+1, bytes+size
			return nil
		})
		if err != nil || !skipped || read > c.most || read == 0 || charged < read || bytes < 20*charged {
			t.Errorf("%s: %d of %d records were read, want at most %d; skipped %v, %d records and %d bytes charged: %v", name, read, records, c.most, skipped, charged, bytes, err)
		}
		all += read
	}
	failed := errors.New("no turn")
	if read, _, err := load(40, 1<<20, func(int) error { return failed }); !errors.Is(err, failed) || read > 0 || all == 0 {
		t.Errorf("without a turn: %d records, %v", read, err)
	}
}
