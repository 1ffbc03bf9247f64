package entities

import (
	"strings"
	"testing"
)

// TestStatesOfTruncatedHistoriesAreMigrated: a module whose states have another
// form reads the snapshots that are left by its migration, with all states;
// what it has written the module before does not read, and does not get.
func TestStatesOfTruncatedHistoriesAreMigrated(t *testing.T) {
	l := newLedgers(t)
	migrated, forgetful, fixed := l.upload("migrated"), l.upload("forgetful"), l.upload("fixed")
	l.fillLedgers(3) // events after the snapshots
	if err := l.activate(forgetful, false, false); reason(err) != "VERIFY_FAILED" || !strings.Contains(err.Error(), "migrated from that of the module that serves") {
		t.Fatalf("a module that migrates a state to something else after than before its last events: %v", err)
	}
	l.whole()
	if err := l.activate(migrated, false, false); err != nil {
		t.Fatal(err)
	}
	l.whole()
	l.stop()
	l.start()
	l.whole()
	// Of entities that it has not written the module before has its snapshots.
	if err := l.back(false); err != nil {
		t.Fatal(err)
	}
	l.whole()
	if err := l.activate(migrated, false, false); err != nil {
		t.Fatal(err)
	}
	l.fillLedgers(30)
	l.whole()
	l.stop()
	l.start()
	l.whole()

	if err := l.back(false); reason(err) != "VERIFY_FAILED" {
		t.Fatalf("the module before, over snapshots of another form: %v", err)
	}
	l.whole()
	if err := l.activate(fixed, false, false); reason(err) != "VERIFY_FAILED" {
		t.Fatalf("a module of the form before, over snapshots of another form: %v", err)
	}
	l.whole()
	l.fillLedgers(6)
	l.whole()
	if err := l.back(true); err != nil {
		t.Fatal(err)
	}
	l.faulted()
	if err := l.activate(migrated, true, false); err != nil {
		t.Fatal(err)
	}
	l.whole()
}
