package entities

import (
	"strings"
	"testing"
)

// TestStatesOfTruncatedHistoriesAreMigrated checks that a module with a new
// state version reads the remaining snapshots of truncated histories by its
// migration and keeps all states. The previous module cannot read the states
// that the new module writes, and is not given them.
func TestStatesOfTruncatedHistoriesAreMigrated(t *testing.T) {
	l := newLedgers(t)
	migrated, forgetful, fixed := l.upload("migrated"), l.upload("forgetful"), l.upload("fixed")
	l.fillLedgers(3) // events after the snapshots
	if err := l.activate(forgetful, false, false); reason(err) != "VERIFY_FAILED" || !strings.Contains(err.Error(), ", migrated from the state of the active module ") {
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
	// The previous module still has its own snapshots of entities to which the
	// newer module has not written.
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
