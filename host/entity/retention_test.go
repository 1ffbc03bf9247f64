package entity

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// cutAtFive returns a world with an entity of ten events, of which the first
// five are compacted away, without a snapshot.
func cutAtFive(t *testing.T) *world {
	t.Helper()
	w := quiet(t)
	w.core.opts.SnapshotEvents = -1
	for i := range 10 {
		w.ask(request.Command, "add", fmt.Sprintf("c%d", i))
	}
	w.cuts = map[string]journal.Sequence{"x": 5}
	w.handOver()
	return w
}

// TestCompactedHistoryNeedsSnapshot checks that an entity whose first events
// are gone is built from a snapshot and never from the remaining events
// alone. After a deletion the entity starts again and still knows the
// remaining command ids.
func TestCompactedHistoryNeedsSnapshot(t *testing.T) {
	w := cutAtFive(t)
	if res := w.ask(request.Query, "sum", ""); !errors.Is(res.Err, request.ErrCompacted) {
		t.Fatalf("without its first events: %+v", res)
	}
	h := w.head("x")
	w.snaps["x"] = []journal.Snapshot{{Sequence: 10, Hash: h.hash, Module: w.typ.Digest, Window: 8, Keep: 1, State: []byte("10")}}
	if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "10" {
		t.Fatalf("from a snapshot: %+v", res)
	}
	w.ask(request.Delete, "", "d")
	w.ask(request.Command, "add", "next")
	w.handOver()
	if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "1" || res.Sequence != 12 {
		t.Errorf("what comes after the deletion: %+v", res)
	}
	if res := w.ask(request.Command, "add", "c7"); !res.Duplicate || res.Sequence != 8 {
		t.Errorf("a command from before the deletion: %+v", res)
	}
}

// TestLoadRestartsAfterCompaction checks that a load starts again if a
// snapshot that is applied during the load compacts records that the load
// needs. The entity counts as damaged only if no snapshot matches.
func TestLoadRestartsAfterCompaction(t *testing.T) {
	for _, partial := range []bool{false, true} {
		w := cutAtFive(t)
		h := w.head("x")
		w.cuts, w.newest = nil, 0
		var chain journal.Chain
		var four journal.Hash
		for i := range w.log[:4] {
			four = chain.After(&w.log[i])
		}
		older := journal.Snapshot{Sequence: 4, Hash: four, Module: w.typ.Digest, Window: 2, Keep: 1, State: []byte("4")}
		if partial {
			older.Filter, older.Stands = make([]byte, 64), journal.Position{Index: 4}
		}
		newer := journal.Snapshot{Sequence: 10, Hash: h.hash, Module: w.typ.Digest, Window: 8, Keep: 1, State: []byte("10")}
		w.snaps["x"] = []journal.Snapshot{older}
		w.meanwhile = func() {
			w.snaps["x"], w.cuts = []journal.Snapshot{newer}, map[string]journal.Sequence{"x": 7}
			w.meanwhile = nil
		}
		if res := w.ask(request.Query, "sum", ""); res.Err != nil || string(res.Payload) != "10" {
			t.Errorf("partial %v: %+v", partial, res)
		}
		if w.meanwhile != nil {
			t.Error("nothing was compacted meanwhile")
		}
		w.handOver()
		w.snaps["x"] = []journal.Snapshot{older}
		if res := w.ask(request.Query, "sum", ""); !errors.Is(res.Err, request.ErrDamaged) {
			t.Errorf("partial %v, without a snapshot that fits: %+v", partial, res)
		}
	}
}

// TestWindowBeginsAtCompaction checks a load from a snapshot whose window
// begins with commands that a later snapshot has compacted away. The window
// then begins after the compacted commands, which count as forgotten.
func TestWindowBeginsAtCompaction(t *testing.T) {
	w := cutAtFive(t)
	h := w.head("x")
	w.snaps["x"] = []journal.Snapshot{{Sequence: 10, Hash: h.hash, Module: w.typ.Digest, Window: 3, Keep: 1, State: []byte("10")}}
	if res := w.ask(request.Query, "sum", ""); res.Err != nil || string(res.Payload) != "10" {
		t.Fatalf("the state: %+v", res)
	}
	if res := w.ask(request.Command, "add", "c7"); !res.Duplicate || res.Sequence != 8 {
		t.Errorf("a command in the window of the snapshot: %+v", res)
	}
	if res := w.ask(request.Command, "add", "new"); res.Err != nil || res.Duplicate || res.Sequence != 11 {
		t.Errorf("a new command: %+v", res)
	}
}

// TestRowOnlyEntityCanBeDeleted checks that an entity whose state cannot be
// built can be deleted, once per id, and then starts again, and that every
// other request for it fails.
func TestRowOnlyEntityCanBeDeleted(t *testing.T) {
	w := cutAtFive(t)
	if res := w.ask(request.Delete, "", "c7"); !errors.Is(res.Err, request.ErrCommandIDReused) {
		t.Fatalf("the id of a command: %+v", res)
	}
	w.core.disk = fullDisk(true)
	if res := w.ask(request.Delete, "", "d"); !errors.Is(res.Err, request.ErrReadOnly) {
		t.Fatalf("without room: %+v", res)
	}
	w.core.disk = fullDisk(false)
	if res := w.ask(request.Query, "sum", ""); !errors.Is(res.Err, request.ErrCompacted) {
		t.Fatalf("a query: %+v", res)
	}
	var before, behind asked
	r := func(kind request.Kind, name, id string, done *asked) *request.Request {
		return &request.Request{Kind: kind, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Shard: worldShard, Name: name, Payload: []byte("1"),
			ID: journal.CommandID(id), ExpectedSequence: request.NoExpectation, Done: done}
	}
	var deleted asked
	w.core.submit(w.now, []*request.Request{r(request.Command, "add", "early", &before), r(request.Delete, "", "d", &deleted), r(request.Command, "add", "late", &behind)})
	if res := w.ask(request.Delete, "", "e"); res.Err != nil || res.Sequence != 13 {
		t.Errorf("a second deletion: %+v", res)
	}
	if !errors.Is(before.got.Err, request.ErrCompacted) || deleted.got.Err != nil || deleted.got.Sequence != 11 || behind.got.Err != nil || behind.got.Sequence != 12 {
		t.Fatalf("before %+v, the deletion %+v, after %+v", before.got, deleted.got, behind.got)
	}
	if res := w.ask(request.Delete, "", "d"); !res.Duplicate || res.Sequence != 11 {
		t.Errorf("the same deletion again: %+v", res)
	}
	if w.open > 1 {
		t.Errorf("%d instances", w.open)
	}
}

// TestSnapshotHasRetention checks that a snapshot has the type's
// retention, or the override at the time of the snapshot.
func TestSnapshotHasRetention(t *testing.T) {
	w := quiet(t)
	w.retain = 21
	set := &testSettings{}
	w.core.opts.Settings = set
	w.handOver()
	n := 0
	for _, tt := range []struct {
		set    RetentionOverride
		retain uint64
		keep   uint8
	}{
		{RetentionOverride{}, 21, 3},
		{RetentionOverride{Records: 5, RecordsSet: true}, 5, 3},
		{RetentionOverride{Snapshots: 1}, 21, 1},
		{RetentionOverride{RecordsSet: true, Snapshots: 9}, 0, journal.MaxSnapshots},
	} {
		set.retention = tt.set
		for range 20 {
			n++
			w.ask(request.Command, "add", fmt.Sprintf("c%d", n))
		}
		all := w.snaps["x"]
		if len(all) == 0 {
			t.Fatal("no snapshot was taken")
		}
		if s := all[len(all)-1]; s.Retain != tt.retain || s.Keep != tt.keep {
			t.Errorf("with %+v set: retain %d, keep %d", tt.set, s.Retain, s.Keep)
		}
	}
}

// ReadSince reads the log after the position of a snapshot.
func (w *world) ReadSince(_ context.Context, _ sharding.ShardID, id sharding.EntityID, s *journal.Snapshot, fn func(*journal.Record, journal.Hash) error) error {
	var chain journal.Chain
	w.records = 0
	w.since++
	if cut := w.cuts[id.ID]; s.Sequence < cut {
		return &journal.TruncatedError{First: cut + 1}
	}
	for i := range w.log[s.Stands.Index:] {
		r := w.log[int(s.Stands.Index)+i]
		if r.Entity != id {
			continue
		}
		w.records++
		if err := fn(&r, chain.After(&r)); err != nil {
			return err
		}
	}
	return nil
}

// TestForeignSnapshotIsLoadedOnlyIfVerified checks an entity whose first events are
// gone. A snapshot of another module is loaded only if the module is verified
// to read it. Otherwise the load fails, and neither a query nor a command has
// an effect.
func TestForeignSnapshotIsLoadedOnlyIfVerified(t *testing.T) {
	w := cutAtFive(t)
	h := w.head("x")
	other := journal.Digest{7}
	w.snaps["x"] = []journal.Snapshot{{Sequence: 10, Hash: h.hash, Module: other, Window: 8, Keep: 1, State: []byte("10")}}
	for range 2 {
		if res := w.ask(request.Query, "sum", ""); !errors.Is(res.Err, request.ErrCompacted) {
			t.Fatalf("from the snapshot of a different module: %+v", res)
		}
		if res := w.ask(request.Command, "add", "n"); !errors.Is(res.Err, request.ErrCompacted) {
			t.Fatalf("a command: %+v", res)
		}
	}
	if len(w.snaps["x"]) != 1 || w.head("x").sequence != h.sequence {
		t.Fatalf("something was written: %+v", w.head("x"))
	}
	w.handOver()
	w.typ.Snapshots.IfTruncated = []journal.Digest{{6}, other}
	if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "10" {
		t.Errorf("once it was proved: %+v", res)
	}
}
