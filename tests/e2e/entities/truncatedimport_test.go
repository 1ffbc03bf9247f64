package entities

import (
	"bytes"
	"testing"

	"github.com/hostd/hostd/tests/support/testkit"
)

// imported exports everything of l into a new node.
func (l *ledgers) imported() *ledgers {
	l.t.Helper()
	var file bytes.Buffer
	if err := l.c.Export(l.t.Context(), &file); err != nil {
		l.t.Fatal(err)
	}
	return l.importedFrom(&file)
}

// importedFrom imports a file into a new node.
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

// TestImportKeepsStatesOfTruncatedHistories checks that a cluster that imports
// entities with truncated histories has their states, and requires a comparison
// before another module serves them, like the original cluster.
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

// TestImportIncludesProofs checks that an import includes the results of
// comparisons: a module that was proved to read the snapshots in the original
// cluster reads them in the new cluster, and a module that was forced does not.
func TestImportIncludesProofs(t *testing.T) {
	from := newLedgers(t)
	renamed, fixed := from.upload("renamed"), from.upload("fixed")
	if err := from.activate(fixed, false, false); err != nil {
		t.Fatal(err)
	}
	proved := from.imported()
	proved.whole() // loaded from snapshots of the previous module
	proved.fillLedgers(30)
	proved.whole()
	if err := proved.back(false); err != nil { // results of comparisons in the original cluster do not apply to a rollback in the new cluster
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
