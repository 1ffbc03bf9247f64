package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

type part struct {
	kind journal.PartKind
	data []byte
}

// cut returns the parts of a shard, in order.
func cut(t *testing.T, m *eventlog.Machine, id sharding.ShardID) (all []part) {
	t.Helper()
	c, err := m.Export(id)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if index, term := m.StateIndex(id); c.Index != index || c.Term != term {
		t.Fatalf("the cut of shard %d is at %d of term %d, %d of term %d is stored", id, c.Index, c.Term, index, term)
	}
	err = c.Parts(context.Background(), func(kind journal.PartKind, data []byte) error {
		all = append(all, part{kind, slices.Clone(data)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// partsText formats parts by entity, in the order that matters for each kind.
func partsText(t *testing.T, all []part) []string {
	t.Helper()
	texts := map[string][]string{}
	for _, p := range all {
		e, err := journal.PartEntity(p.kind, p.data)
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("%s %d", e, p.kind)
		texts[key] = append(texts[key], fmt.Sprintf("%s %x", key, p.data))
	}
	var out []string
	for _, lines := range texts {
		if k := lines[0]; len(k) > 0 {
			out = append(out, fmt.Sprint(lines))
		}
	}
	slices.Sort(out)
	return out
}

// importer proposes the parts of an export to the shards of a machine.
type importer struct {
	t      *testing.T
	m      *eventlog.Machine
	shards uint32
	id     journal.ImportID
	bodies map[sharding.ShardID][]journal.Import
}

func newImporter(t *testing.T, m *eventlog.Machine, shards uint32, all []part, chunk int) *importer {
	im := &importer{t: t, m: m, shards: shards, id: journal.ImportID{1, 2, 3}, bodies: map[sharding.ShardID][]journal.Import{}}
	open := map[sharding.ShardID][]byte{}
	add := func(id sharding.ShardID, last bool) {
		im.bodies[id] = append(im.bodies[id], journal.Import{ID: im.id, Chunk: uint64(len(im.bodies[id])), Last: last, Parts: open[id]})
		open[id] = nil
	}
	for _, p := range all {
		e, err := journal.PartEntity(p.kind, p.data)
		if err != nil {
			t.Fatal(err)
		}
		id := sharding.ShardOf(e, shards)
		if open[id] = journal.AppendPart(open[id], p.kind, p.data); len(open[id]) > chunk {
			add(id, false)
		}
	}
	for id := sharding.ShardID(1); id <= sharding.ShardID(shards); id++ {
		add(id, true)
	}
	return im
}

func (im *importer) apply(id sharding.ShardID, kind journal.EntryKind, body []byte) error {
	index, _ := im.m.Applied(id)
	data := append(journal.AppendEntryHeader(nil, kind, 1, index+1), body...)
	return apply1(im.m, id, journal.Committed{Index: index + 1, Term: 1, Data: data}).Err
}

func (im *importer) propose(id sharding.ShardID, i journal.Import) error {
	return im.apply(id, journal.EntryImport, journal.AppendImport(nil, &i))
}

// An export after an import returns the imported content, for any number of
// shards and with restarts at any point. The store then passes verification.
func TestImportReproducesExport(t *testing.T) {
	for seed := range uint64(*seeds) {
		src := newSource(seed, 1, 40)
		from := openStore(t, filepath.Join(t.TempDir(), "from"), smallStore)
		a := openMachine(t, from, 0, eventlog.Options{})
		for range 500 {
			id, c, want := src.next()
			checkVerdict(t, apply1(a, id, c), want)
			if src.rng.IntN(40) == 0 {
				flush(t, a, from)
			}
		}
		flush(t, a, from)
		all := cut(t, a, 1)
		kinds := map[journal.PartKind]int{}
		for _, p := range all {
			kinds[p.kind]++
		}
		for kind := journal.PartRecord; kind <= journal.PartDeadLetter; kind++ {
			if kinds[kind] == 0 && seed == 0 {
				t.Errorf("there is no part of kind %d: the test shows less than it should", kind)
			}
		}
		shards := uint32(1 + seed%5)
		dir := filepath.Join(t.TempDir(), "to")
		to, err := store.Open(dir, smallStore)
		if err != nil {
			t.Fatal(err)
		}
		b := openMachine(t, to, 0, eventlog.Options{MaxEntityRows: 1 + int(seed%3)})
		im := newImporter(t, b, shards, all, 1+int(seed%4*3000))
		for done := false; !done; {
			done = true
			for id, bodies := range im.bodies {
				at, _ := im.m.ImportState(id)
				if at.Complete {
					continue
				}
				done = false
				if err := im.propose(id, bodies[at.Next]); err != nil {
					t.Fatalf("chunk %d of shard %d: %v", at.Next, id, err)
				}
				if err := im.propose(id, bodies[src.rng.IntN(int(at.Next)+1)]); err != nil {
					t.Fatalf("chunks to %d of shard %d, one again: %v", at.Next, id, err)
				}
				if src.rng.IntN(3) == 0 {
					flush(t, im.m, to)
				}
				if src.rng.IntN(90) > 0 {
					continue
				}
				if err := to.Close(); err != nil { // as after an earlier crash
					t.Fatal(err)
				}
				if to, err = store.Open(dir, smallStore); err != nil {
					t.Fatal(err)
				}
				im.m = openMachine(t, to, to.Watermark(), eventlog.Options{})
				break
			}
		}
		flush(t, im.m, to)
		var again []part
		for id := sharding.ShardID(1); id <= sharding.ShardID(shards); id++ {
			again = append(again, cut(t, im.m, id)...)
			if got, ok := im.m.ImportState(id); !ok || !got.Complete {
				t.Errorf("shard %d: %+v %v", id, got, ok)
			}
		}
		if got, want := partsText(t, again), partsText(t, all); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d parts came back of %d", seed, len(got), len(want))
		}
		report, err := to.Verify(t.Context(), store.Latest)
		if err != nil || len(report.Problems) > 0 {
			t.Fatalf("seed %d: %v %v", seed, report, err)
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A shard accepts the chunks of an import only in order and from the first
// chunk, and accepts no other entries until the import is complete.
func TestImportRejectsOutOfOrderChunks(t *testing.T) {
	src := newSource(1, 1, 12)
	from := openStore(t, filepath.Join(t.TempDir(), "from"), smallStore)
	a := openMachine(t, from, 0, eventlog.Options{})
	for range 200 {
		id, c, want := src.next()
		checkVerdict(t, apply1(a, id, c), want)
	}
	flush(t, a, from)
	all := cut(t, a, 1)
	open := func() *importer {
		st := openStore(t, filepath.Join(t.TempDir(), "to"), smallStore)
		return newImporter(t, openMachine(t, st, 0, eventlog.Options{}), 1, all, 500)
	}
	record := func(im *importer) error {
		r := journal.Record{Entity: sharding.EntityID{Type: "t", ID: "new"}, Term: 1, CommandID: "c", Events: []journal.Event{{Type: "e"}}}
		return im.apply(1, journal.EntryRecords, journal.AppendRecord(nil, &r))
	}
	im := open()
	bodies := im.bodies[1]
	if len(bodies) < 5 {
		t.Fatalf("the test is about few chunks: %d", len(bodies))
	}
	if err := im.propose(1, bodies[1]); !errors.Is(err, eventlog.ErrInvalid) {
		t.Errorf("the second chunk first: %v", err)
	}
	if err := im.propose(1, bodies[0]); err != nil {
		t.Fatal(err)
	}
	if err := record(im); !errors.Is(err, eventlog.ErrImporting) {
		t.Errorf("a command meanwhile: %v", err)
	}
	if err := im.propose(1, bodies[2]); !errors.Is(err, eventlog.ErrInvalid) {
		t.Errorf("a chunk is left out: %v", err)
	}
	other := bodies[1]
	other.ID[0]++
	if err := im.propose(1, other); !errors.Is(err, eventlog.ErrNotEmpty) {
		t.Errorf("another file: %v", err)
	}
	for n := 0; n < len(all); n += 1 + len(all)/30 { // an entity's record or one of its timers is missing
		broken := newImporter(t, open().m, 1, slices.Delete(slices.Clone(all), n, n+1), 1<<30)
		err := broken.propose(1, broken.bodies[1][0])
		index, _ := broken.m.Applied(1)
		if err == nil {
			err = broken.propose(1, broken.bodies[1][len(broken.bodies[1])-1])
		}
		switch all[n].kind {
		case journal.PartRecord, journal.PartSnapshot, journal.PartTimer:
			if err == nil || broken.m.Entities(1) != 0 || index != 1 {
				t.Errorf("without part %d of kind %d: %v, %d entities", n, all[n].kind, err, broken.m.Entities(1))
			}
		}
	}
	for _, body := range bodies[1:] {
		if err := im.propose(1, body); err != nil {
			t.Fatal(err)
		}
	}
	after := bodies[0]
	after.Chunk = uint64(len(bodies))
	if err := im.propose(1, after); !errors.Is(err, eventlog.ErrInvalid) {
		t.Errorf("a chunk after the last: %v", err)
	}
	if err := record(im); err != nil {
		t.Errorf("a command afterwards: %v", err)
	}
	full := open()
	if err := record(full); err != nil {
		t.Fatal(err)
	}
	if err := full.propose(1, bodies[0]); !errors.Is(err, eventlog.ErrNotEmpty) {
		t.Errorf("a shard with an entity: %v", err)
	}
}

// An invalid message or dead letter in an archive is rejected and stops no
// shard, because reading an archive checks for damage but not for valid
// contents.
func TestInvalidImportedMessagesAreRejected(t *testing.T) {
	for _, kind := range []journal.PartKind{journal.PartMessage, journal.PartDeadLetter} {
		data := journal.AppendTransfer(nil, &journal.Transfer{Entity: sharding.EntityID{Type: "t", ID: "a"}, Body: []byte("nonsense")})
		st := openStore(t, filepath.Join(t.TempDir(), "to"), smallStore)
		im := newImporter(t, openMachine(t, st, 0, eventlog.Options{}), 1, []part{{kind: kind, data: data}}, 500)
		for range 2 {
			if err := im.propose(1, im.bodies[1][0]); !errors.Is(err, eventlog.ErrInvalid) || errors.Is(err, eventlog.ErrStopped) {
				t.Errorf("part of kind %d: %v", kind, err)
			}
		}
	}
}
