package eventlog_test

import (
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
		skipped, err := eventlog.History{Machine: a.m}.ReadRecent(t.Context(), 1, sharding.EntityID{Type: "t", ID: a.id}, wanted, 1<<20, 1<<62, func(*journal.Record, journal.Hash) error {
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
