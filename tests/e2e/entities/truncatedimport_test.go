package entities

import (
	"bytes"
	"testing"

	"github.com/hostd/hostd/tests/support/testkit"
)

// imported is an empty node into which everything of l was exported.
func (l *ledgers) imported() *ledgers {
	l.t.Helper()
	var file bytes.Buffer
	if err := l.c.Export(l.t.Context(), &file); err != nil {
		l.t.Fatal(err)
	}
	return l.importedFrom(&file)
}

// importedFrom is an empty node into which a file was imported.
func (l *ledgers) importedFrom(file *bytes.Buffer) *ledgers {
	l.t.Helper()
	to := &ledgers{node: &node{t: l.t, dir: l.t.TempDir(), shards: 3}, before: l.before, total: l.total}
	testkit.ShareCache(l.t, to.dir)
	to.start()
	l.t.Cleanup(to.stop)
	if _, err := to.c.Import(l.t.Context(), file); err != nil {
		l.t.Fatal(err)
	}
	return to
}

// TestImportKeepsStatesOfTruncatedHistories: a cluster that gets entities whose
// first events are gone has their states, and needs a proof for another module
// as the one that they come from does.
func TestImportKeepsStatesOfTruncatedHistories(t *testing.T) {
	from := newLedgers(t)
	renamed, fixed := from.upload("renamed"), from.upload("fixed")
	to := from.imported()
	to.whole()
	to.fillLedgers(6)
	to.whole()
	if err := to.activate(renamed, false, false); reason(err) != "VERIFY_FAILED" {
		t.Fatalf("a module that loses the state is activated: %v", err)
	}
	to.whole()
	if err := to.activate(fixed, false, false); err != nil {
		t.Fatal(err)
	}
	to.whole()
	if err := to.activate(renamed, true, false); err != nil {
		t.Fatal(err)
	}
	to.faulted()
}

// TestImportTakesProofsAlong: what a module was proved to read where the file
// was made it reads in the cluster that gets it, and what it was forced over it
// does not.
func TestImportTakesProofsAlong(t *testing.T) {
	from := newLedgers(t)
	renamed, fixed := from.upload("renamed"), from.upload("fixed")
	if err := from.activate(fixed, false, false); err != nil {
		t.Fatal(err)
	}
	proved := from.imported()
	proved.whole() // by snapshots of the module before
	proved.fillLedgers(30)
	proved.whole()
	if err := proved.back(false); err != nil { // nothing that was proved there counts here
		t.Fatal(err)
	}
	proved.whole()

	if err := from.activate(renamed, true, false); err != nil {
		t.Fatal(err)
	}
	from.faulted()
	forced := from.imported()
	forced.faulted()
	forced.stop()
	forced.start()
	forced.faulted()
	if err := forced.back(false); err != nil {
		t.Fatal(err)
	}
	forced.whole()
	forced.fillLedgers(6)
	forced.whole()
}
