package archive_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/archive"
	"github.com/hostd/hostd/sharding"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files instead of comparing with them")

// history writes an entity of n records with two events each.
func history(t testing.TB, w *archive.Writer, e sharding.EntityID, n int, payload []byte) {
	t.Helper()
	var chain journal.Chain
	end := journal.EntityEnd{Entity: e}
	var view journal.RecordView
	for i := range n {
		r := journal.Record{
			Entity: e, Term: 7, RecordedAt: int64(i), Expected: end.Sequence, Prev: end.Hash, CommandID: journal.CommandID(fmt.Sprint("c", i)),
			Events: []journal.Event{{Type: "a", Payload: payload}, {Type: "b", Tags: []string{"t"}}},
		}
		raw := journal.AppendRecord(nil, &r)
		if err := view.Parse(raw); err != nil {
			t.Fatal(err)
		}
		end.Sequence, end.Hash = view.Last(), chain.AfterView(end.Hash, &view)
		end.Records++
		must(t, w.Part(journal.PartRecord, raw))
	}
	must(t, w.Part(journal.PartTimer, journal.AppendPartialTimer(nil, &journal.PartialTimer{Entity: e, Name: []byte("n"), Due: 5, Command: []byte("c")})))
	end.Timers = 1
	must(t, w.Part(journal.PartEnd, journal.AppendEntityEnd(nil, &end)))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func entity(id string) sharding.EntityID { return sharding.EntityID{Type: "account", ID: id} }

// sample writes an archive of two shards. size is the size of its module.
func sample(t testing.TB, size, entities int, payload []byte) ([]byte, archive.Summary) {
	t.Helper()
	var out bytes.Buffer
	w, err := archive.NewWriter(&out, archive.ID{1, 2, 15: 3}, []byte(`{"cluster":{}}`))
	must(t, err)
	wasm := bytes.Repeat([]byte("wasm"), size/4)
	must(t, w.Module(sha256.Sum256(wasm), wasm))
	for shard := range 2 {
		must(t, w.Begin(archive.Shard{ID: sharding.ShardID(shard + 1), Index: 9, Term: 2, Clock: -4}))
		for i := range entities {
			history(t, w, entity(fmt.Sprint(shard, i)), 2, payload)
		}
		e := entity(fmt.Sprint("sender", shard))
		must(t, w.Part(journal.PartPair, journal.AppendPartCount(nil, &journal.Count{Entity: e, Other: entity("x"), Number: 4})))
		must(t, w.Part(journal.PartMessage, journal.AppendTransfer(nil, &journal.Transfer{Entity: e, Body: []byte("send")})))
		must(t, w.End())
	}
	sum, err := w.Close()
	must(t, err)
	return out.Bytes(), sum
}

type collected struct {
	id      archive.ID
	cluster string
	modules []journal.Digest
	shards  []archive.Shard
	ended   int
	parts   []string
}

func (c *collected) Cluster(id archive.ID, cluster []byte) error {
	c.id, c.cluster = id, string(cluster)
	return nil
}
func (c *collected) Module(d journal.Digest, wasm []byte) error {
	c.modules = append(c.modules, sha256.Sum256(wasm))
	return nil
}
func (c *collected) Begin(s archive.Shard) error { c.shards = append(c.shards, s); return nil }
func (c *collected) End(archive.Shard) error     { c.ended++; return nil }
func (c *collected) Part(kind journal.PartKind, data []byte) error {
	c.parts = append(c.parts, fmt.Sprintf("%d %x", kind, data))
	return nil
}

func TestArchiveRoundTrip(t *testing.T) {
	for _, payload := range [][]byte{[]byte("p"), bytes.Repeat([]byte("big"), 100_000)} {
		whole, sum := sample(t, 2<<20+4, 5, payload)
		var c collected
		read := int64(0)
		got, err := archive.Read(bytes.NewReader(whole), &c, func(n int64) { read += n })
		if err != nil || read != int64(len(whole)) || got.Bytes != read {
			t.Fatalf("%+v, %d of %d bytes: %v", got, read, len(whole), err)
		}
		if got.Timers != 10 || got.Messages != 2 || got.DeadLetters != 0 {
			t.Errorf("%d timers, %d sends and %d dead letters are counted", got.Timers, got.Messages, got.DeadLetters)
		}
		if got.Digest != sum.Digest || got.Entities != 10 || got.Parts != sum.Parts || got.Shards != 2 || got.Modules != 1 || got.ID != sum.ID {
			t.Errorf("%+v, want %+v", got, sum)
		}
		if c.id != sum.ID || c.cluster != `{"cluster":{}}` || len(c.modules) != 1 || len(c.shards) != 2 || c.ended != 2 || uint64(len(c.parts)) != sum.Parts {
			t.Errorf("%+v", c)
		}
		if c.shards[1] != (archive.Shard{ID: 2, Index: 9, Term: 2, Clock: -4}) {
			t.Errorf("%+v", c.shards[1])
		}
	}
}

// TestDamagedArchivesAreRejected checks that an archive with a flipped bit, a
// truncated archive and an archive with an extra byte are rejected.
func TestDamagedArchivesAreRejected(t *testing.T) {
	whole, _ := sample(t, 40, 2, []byte("p"))
	for i := range whole {
		bad := slices.Clone(whole)
		bad[i] ^= 1 << (i % 8)
		if _, err := archive.Verify(bytes.NewReader(bad), nil); !errors.Is(err, archive.ErrDamaged) && !errors.Is(err, archive.ErrUnsupported) {
			t.Fatalf("byte %d: %v", i, err)
		}
		if _, err := archive.Verify(bytes.NewReader(whole[:i]), nil); !errors.Is(err, archive.ErrDamaged) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	if _, err := archive.Verify(bytes.NewReader(append(whole, 0)), nil); !errors.Is(err, archive.ErrDamaged) {
		t.Errorf("a byte too many: %v", err)
	}
}

// TestInconsistentArchivesAreRejected: archives with valid checksums and inconsistent content
// are rejected.
func TestInconsistentArchivesAreRejected(t *testing.T) {
	e, o := entity("a"), entity("b")
	record := func(e sharding.EntityID, expected journal.Sequence) []byte {
		return journal.AppendRecord(nil, &journal.Record{Entity: e, Expected: expected, CommandID: "c", Events: []journal.Event{{Type: "a"}}})
	}
	end := func(e sharding.EntityID) []byte { return journal.AppendEntityEnd(nil, &journal.EntityEnd{Entity: e}) }
	send := journal.AppendTransfer(nil, &journal.Transfer{Entity: e, Body: []byte("b")})
	type part struct {
		kind journal.PartKind
		data []byte
	}
	for name, parts := range map[string][]part{
		"an entity without an end":       {{journal.PartRecord, record(e, 0)}},
		"two entities at once":           {{journal.PartRecord, record(e, 0)}, {journal.PartRecord, record(o, 0)}},
		"a history that begins later":    {{journal.PartRecord, record(e, 1)}, {journal.PartEnd, end(e)}},
		"an end of something else":       {{journal.PartRecord, record(e, 0)}, {journal.PartEnd, end(e)}},
		"an entity after sends":          {{journal.PartMessage, send}, {journal.PartEnd, end(e)}},
		"a send within an entity":        {{journal.PartRecord, record(e, 0)}, {journal.PartMessage, send}},
		"a name that no entity can have": {{journal.PartEnd, end(sharding.EntityID{Type: "A", ID: "a"})}},
		"a part that is cut short":       {{journal.PartTimer, []byte{1}}},
	} {
		var out bytes.Buffer
		w, err := archive.NewWriter(&out, archive.ID{}, nil)
		must(t, err)
		must(t, w.Begin(archive.Shard{ID: 1}))
		for _, p := range parts {
			must(t, w.Part(p.kind, p.data))
		}
		must(t, w.End())
		if _, err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Verify(&out, nil); !errors.Is(err, archive.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCompactedHistoriesAreValid: an entity whose first events were compacted
// is valid with the remaining events.
func TestCompactedHistoriesAreValid(t *testing.T) {
	var chain journal.Chain
	var view journal.RecordView
	e := entity("a")
	raw := journal.AppendRecord(nil, &journal.Record{Entity: e, Expected: 41, Prev: journal.Hash{9}, CommandID: "c", Events: []journal.Event{{Type: "a"}}})
	must(t, view.Parse(raw))
	for records, whole := range map[uint64]bool{1: true, 2: false} {
		var out bytes.Buffer
		w, err := archive.NewWriter(&out, archive.ID{}, nil)
		must(t, err)
		must(t, w.Begin(archive.Shard{ID: 1}))
		must(t, w.Part(journal.PartRecord, raw))
		end := journal.EntityEnd{Entity: e, Sequence: 42, Hash: chain.AfterView(journal.Hash{9}, &view), Records: records}
		must(t, w.Part(journal.PartEnd, journal.AppendEntityEnd(nil, &end)))
		must(t, w.End())
		_, err = w.Close()
		must(t, err)
		if _, err := archive.Verify(&out, nil); (err == nil) != whole {
			t.Errorf("one of %d records: %v", records, err)
		}
	}
}

func TestGoldenArchive(t *testing.T) {
	whole, _ := sample(t, 8, 1, []byte("p"))
	var out strings.Builder
	for len(whole) > 0 {
		n := min(len(whole), 32)
		fmt.Fprintln(&out, hex.EncodeToString(whole[:n]))
		whole = whole[n:]
	}
	const path = "testdata/archive.txt"
	if *rewrite {
		must(t, os.WriteFile(path, []byte(out.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if out.String() != string(want) {
		t.Errorf("the format changed; got\n%s", out.String())
	}
}

func FuzzRead(f *testing.F) {
	whole, _ := sample(f, 8, 1, []byte("p"))
	f.Add(whole)
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := archive.Verify(bytes.NewReader(b), nil); err == nil && !bytes.Equal(b, whole) {
			sum, err := archive.Read(bytes.NewReader(b), &collected{}, nil)
			if err != nil || sum.Bytes != int64(len(b)) {
				t.Errorf("%+v, %v", sum, err)
			}
		}
	})
}
