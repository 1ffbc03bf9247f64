package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/sharding"
)

var small = Options{MemTableBytes: 256 << 10, BlockCacheBytes: 1 << 20, IndexCacheBytes: 1 << 20}

func open(t *testing.T, dir string, opts Options) *Store {
	t.Helper()
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

func closeStore(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func key(shard, n int) []byte {
	return fmt.Appendf(AppendPrefix(nil, sharding.ShardID(shard), 0, ClassMeta), "k%05d", n)
}

// put writes n pairs of the shard under a version.
func put(t *testing.T, s *Store, version uint64, shard, n, size int) {
	t.Helper()
	var b Batch
	b.Put(AppendPrefix(nil, sharding.ShardID(shard), 0, ClassApplied), AppendApplied(nil, &Applied{Index: version}))
	for i := range n {
		b.Put(key(shard, i), fmt.Appendf(nil, "%d:%s", version, strings.Repeat("x", size)))
	}
	if err := s.Write(&b, version); err != nil {
		t.Fatal(err)
	}
}

func scan(t *testing.T, s *Store, version uint64) map[string]string {
	t.Helper()
	v, err := s.ViewAt(version)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	out := make(map[string]string)
	err = v.Scan(nil, nil, func(key, body []byte) error {
		out[string(key)] = string(body)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// TestEveryFlippedBitOfAPairIsSeen: the frame detects any flipped bit of the
// value and of its key.
func TestEveryFlippedBitOfAPairIsSeen(t *testing.T) {
	var b Batch
	b.Put(key(1, 1), []byte("body"))
	p := b.kvs[0]
	for bit := range len(b.buf) * 8 {
		bad := bytes.Clone(b.buf)
		bad[bit/8] ^= 1 << (bit % 8)
		_, err := openValue(bad[:p.value], bad[p.value:p.end])
		if !errors.Is(err, journal.ErrDamaged) && !errors.Is(err, journal.ErrUnsupported) {
			t.Errorf("bit %d: %v", bit, err)
		}
	}
	for n := range p.end - p.value {
		if _, err := openValue(b.buf[:p.value], b.buf[p.value:p.value+n]); !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("value of %d bytes: %v", n, err)
		}
	}
}

func TestBodiesRoundTrip(t *testing.T) {
	h := Head{Sequence: 1 << 40, Hash: journal.Hash{1, 2}, Last: journal.Position{Index: 7, Ordinal: 3}, Deleted: true, UpdatedAt: -5, Records: 9, Bytes: 1 << 50}
	if got, err := DecodeHead(AppendHead(nil, &h)); err != nil || got != h {
		t.Errorf("head %+v %v", got, err)
	}
	h.Snapshots = Snapshots{3, 5}
	if got, err := DecodeHead(AppendHead(nil, &h)); err != nil || got != h {
		t.Errorf("head with snapshots %+v %v", got, err)
	}
	h.Stands = journal.Position{Index: 1 << 34, Ordinal: 5}
	if got, err := DecodeHead(AppendHead(nil, &h)); err != nil || got != h {
		t.Errorf("head with where its snapshot stands %+v %v", got, err)
	}
	h.Timers = 7
	if got, err := DecodeHead(AppendHead(nil, &h)); err != nil || got != h {
		t.Errorf("head with timers %+v %v", got, err)
	}
	h.Cut = &Cut{Sequence: 3, Hash: journal.Hash{5}, Last: journal.Position{Index: 1 << 33, Ordinal: 4}}
	body := AppendHead(nil, &h)
	if got, err := DecodeHead(body); err != nil || got.Cut == nil || *got.Cut != *h.Cut || got.Timers != 7 || got.Stands != h.Stands || got.Snapshots != h.Snapshots {
		t.Errorf("head with a cut %+v %v", got, err)
	}
	if got, err := DecodeHead(body[:len(body)-1]); err == nil {
		t.Errorf("a head that is cut short %+v", got)
	}
	h.Cut = nil
	if gone := h.Snapshots.Add(9, 2); len(gone) != 1 || gone[0] != 3 || h.Snapshots != (Snapshots{5, 9}) {
		t.Errorf("gone %v, left %v", gone, h.Snapshots)
	}
	if gone := h.Snapshots.Add(10, 1); len(gone) != 2 || h.Snapshots != (Snapshots{10}) {
		t.Errorf("gone %v, left %v", gone, h.Snapshots)
	}
	a := Applied{Index: 1, Term: 2, Clock: -3, Ordered: 4, Entities: 5, Heads: 6, Revision: 7, Bytes: 8}
	body = AppendApplied(nil, &a)
	if got, err := DecodeApplied(body); err != nil || got != a {
		t.Errorf("applied %+v %v", got, err)
	}
	a.Bytes = 0 // applied states of earlier releases have no Bytes
	if got, err := DecodeApplied(body[:56]); err != nil || got != a {
		t.Errorf("applied before bytes %+v %v", got, err)
	}
	a.Revision = 0 // applied states of even earlier releases have no Revision either
	if got, err := DecodeApplied(body[:48]); err != nil || got != a {
		t.Errorf("applied before revisions %+v %v", got, err)
	}
	if _, err := DecodeApplied(body[:55]); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("short mark: %v", err)
	}
}

// FuzzBodies: decoders of values never panic.
func FuzzBodies(f *testing.F) {
	r := journal.Record{Entity: sharding.EntityID{Type: "t", ID: "i"}, Events: []journal.Event{{Type: "e", Tags: []string{"a", ""}}}}
	raw := journal.AppendRecord(nil, &r)
	var v journal.RecordView
	if err := v.Parse(raw); err != nil {
		f.Fatal(err)
	}
	at := journal.Position{Index: 9, Ordinal: 2}
	f.Add(AppendPackRecord(AppendPackStart(nil, journal.Position{}), at, raw))
	f.Add(OrderWriter{}.Row(OrderWriter{}.Start(nil, 3), 3, at, 0, &v))
	f.Add(AppendHead(nil, &Head{}))
	f.Add(AppendHead(nil, &Head{Snapshots: Snapshots{3}, Stands: at, Timers: 1, Cut: &Cut{Sequence: 2}}))
	set, _ := HeadTimers("").With("due", 7)
	f.Add(AppendHead(nil, &Head{Snapshots: Snapshots{3}, Stands: at, Timers: 2, Set: set, Cut: &Cut{Sequence: 2}}))
	f.Add(append(AppendHead(nil, &Head{Timers: 1})[:headBytes], 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := OpenPack(b); err == nil {
			for raw := []byte{0}; raw != nil && err == nil; {
				_, raw, err = p.Next()
			}
		}
		if p, err := OpenOrderPack(b); err == nil {
			var row OrderRow
			for more := true; more && err == nil; {
				if more, err = p.Next(&row); more {
					row.Tags(func(journal.Sequence, []byte) {})
				}
			}
		}
		if h, err := DecodeHead(b); err == nil && !bytes.Equal(AppendHead(nil, &h), b) {
			t.Error("head is not what it was decoded from")
		}
		if _, rest, err := SplitEntity(string(b)); err == nil && len(rest) > len(b) {
			t.Error("rest is longer than the key")
		}
		if k, err := ParseKey(b); err == nil && !bytes.Equal(append(AppendPrefix(nil, k.Shard, k.Generation, k.Class), k.Suffix...), b) {
			t.Error("key is not what it was parsed from")
		}
	})
}

// TestViewsAndLargeBatches: views show the store as of their version, and one
// batch may span several Badger transactions.
func TestViewsAndLargeBatches(t *testing.T) {
	s := open(t, t.TempDir(), small)
	var seen []map[string]string
	for version := uint64(1); version <= 5; version++ {
		put(t, s, version, 1, 200*int(version), 400) // in the end, five times as much as a transaction holds
		seen = append(seen, scan(t, s, version))
	}
	for i, want := range seen {
		if got := scan(t, s, uint64(i+1)); !equal(got, want) || len(got) != 200*(i+1)+1 {
			t.Errorf("version %d has %d pairs, had %d", i+1, len(got), len(want))
		}
	}
	if err := s.Write(&Batch{}, 5); !errors.Is(err, ErrVersion) {
		t.Errorf("version 5 twice: %v", err)
	}
	if s.MaxVersion() != 5 || s.Watermark() >= 5 {
		t.Errorf("highest %d, watermark %d", s.MaxVersion(), s.Watermark())
	}
}

// TestRollBack checks that a rollback restores overwritten and deleted keys and
// removes new keys, also after the store is reopened.
func TestRollBack(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	put(t, s, 1, 1, 300, 100)
	put(t, s, 2, 2, 300, 100)
	want := scan(t, s, 2)
	put(t, s, 3, 1, 400, 900)
	var b Batch
	for i := range 250 {
		b.Delete(key(2, i))
	}
	if err := s.Write(&b, 4); err != nil {
		t.Fatal(err)
	}
	put(t, s, 5, 3, 10, 10)
	at, err := s.RollBack(2)
	if err != nil || at != 6 {
		t.Fatal(at, err)
	}
	if got := scan(t, s, at); !equal(got, want) {
		t.Fatalf("%d pairs, want the %d of version 2", len(got), len(want))
	}
	if again, err := s.RollBack(6); again != 6 || err != nil {
		t.Fatalf("nothing to roll back: %d %v", again, err)
	}
	closeStore(t, s)
	s = open(t, dir, small)
	if at, err = s.RollBack(2); err != nil || !equal(scan(t, s, at), want) {
		t.Fatalf("after opening, at %d: %v", at, err)
	}
}

// TestOpenRemovesEmptyLogs: Badger rejects an empty memtable log, so Open
// removes it.
func TestOpenRemovesEmptyLogs(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	put(t, s, 1, 1, 10, 10)
	closeStore(t, s)
	name := filepath.Join(dir, "00042.mem")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if db, err := openOnce(dir, small.withDefaults()); err == nil {
		closeErr := db.Close()
		t.Fatalf("badger opens it by itself now: the cure can go (%v)", closeErr)
	}
	s = open(t, dir, small)
	if len(scan(t, s, 1)) != 11 {
		t.Fatal("pairs are missing")
	}
}

// TestOpenRefusesDamage: Open fails, names the file and changes nothing if
// Badger would panic, skip a table or delete all tables.
func TestOpenRefusesDamage(t *testing.T) {
	good := t.TempDir()
	s := open(t, good, small)
	for version := uint64(1); version <= 8; version++ {
		put(t, s, version, 1, 200, 300)
	}
	closeStore(t, s)
	tables, err := filepath.Glob(filepath.Join(good, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	table := filepath.Base(tables[0])
	highest, err := preflight(disk.OS{}, good)
	if err != nil || highest != 8 {
		t.Fatal(highest, err)
	}
	for _, tt := range []struct {
		name, where string
		watermark   uint64
		do          func(dir string) error
	}{
		{"table missing", table, 0, func(dir string) error { return os.Remove(filepath.Join(dir, table)) }},
		{"table empty", table, 0, func(dir string) error { return os.Truncate(filepath.Join(dir, table), 0) }},
		{"table cut", table, 0, func(dir string) error { return os.Truncate(filepath.Join(dir, table), 1000) }},
		{"table of a few bytes", table, 0, func(dir string) error { return os.Truncate(filepath.Join(dir, table), 3) }},
		{"manifest missing", "MANIFEST", 0, func(dir string) error { return os.Remove(filepath.Join(dir, "MANIFEST")) }},
		{"manifest empty", "MANIFEST", 0, func(dir string) error { return os.Truncate(filepath.Join(dir, "MANIFEST"), 0) }},
		{"manifest without the last tables", "tables", 7, func(dir string) error { return os.Truncate(filepath.Join(dir, "MANIFEST"), 20) }},
	} {
		dir := filepath.Join(t.TempDir(), "store")
		if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		if err := tt.do(dir); err != nil {
			t.Fatal(err)
		}
		before, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		opts := small
		opts.Watermark = tt.watermark
		s, err := Open(dir, opts)
		var damage *DamageError
		if !errors.As(err, &damage) || !errors.Is(err, journal.ErrDamaged) || damage.Where != tt.where || damage.Action == "" {
			t.Errorf("%s: %v", tt.name, err)
		}
		if s != nil {
			closeStore(t, s)
		}
		after, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(after) != len(before) {
			t.Errorf("%s: the refused directory went from %d to %d files", tt.name, len(before), len(after))
		}
		r, err := VerifyDir(t.Context(), dir, Latest, opts)
		if err != nil || r.Err() == nil {
			t.Errorf("%s: verify says %v %v", tt.name, r, err)
		}
	}
	opts := small
	opts.Watermark = 7
	open(t, good, opts)
}

func TestMaxValueBytes(t *testing.T) {
	for _, opts := range []Options{small, {}} {
		s := open(t, t.TempDir(), opts)
		most := s.maxValueBytes()
		for version, n := range []int{most - 1, most, most + 1} {
			var b Batch
			b.Put(key(1, 1), make([]byte, n))
			err := s.Write(&b, uint64(version+1))
			if (n > most) != errors.Is(err, ErrValueTooLarge) || n <= most && err != nil {
				t.Errorf("value of %d with most %d: %v", n, most, err)
			}
		}
		if got := scan(t, s, 2)[string(key(1, 1))]; len(got) != most {
			t.Errorf("read %d bytes, wrote %d", len(got), most)
		}
		logs, err := filepath.Glob(filepath.Join(s.Dir(), "*.vlog"))
		if err != nil || len(logs) != 1 {
			t.Fatal(logs, err)
		}
		data, err := os.ReadFile(logs[0])
		if err != nil || len(bytes.TrimRight(data, "\x00")) > 20 {
			t.Errorf("the value log has %d bytes: %v", len(bytes.TrimRight(data, "\x00")), err)
		}
	}
}

func TestRoom(t *testing.T) {
	s := open(t, t.TempDir(), small)
	free, total, err := s.freeBytes()
	if err != nil || free == 0 || free > total || s.reserveBytes() < 1<<20 {
		t.Fatal(free, total, s.reserveBytes(), err)
	}
	if s.Room() != (free >= s.reserveBytes()) {
		t.Errorf("room %v with %d bytes free, %d are to be kept", s.Room(), free, s.reserveBytes())
	}
}

// TestCloseWaitsForViews: Close waits for open views, and no view can be opened
// after Close has begun.
func TestCloseWaitsForViews(t *testing.T) {
	s := open(t, t.TempDir(), small)
	put(t, s, 1, 1, 10, 10)
	v, err := s.ViewAt(1)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	for _, err = s.ViewAt(1); !errors.Is(err, ErrClosed); _, err = s.ViewAt(1) {
		if err != nil {
			t.Fatal(err)
		}
		// The view was opened before Close began, so it is released.
		s.release(1)
		time.Sleep(time.Millisecond)
	}
	if found, err := v.Get(key(1, 1), func([]byte) error { return nil }); !found || err != nil {
		t.Fatal("a view open at Close cannot be read", found, err)
	}
	v.Close()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
}

// TestPanicOfTheCallerGoesOn: a panic of the caller's function propagates.
func TestPanicOfTheCallerGoesOn(t *testing.T) {
	s := open(t, t.TempDir(), small)
	put(t, s, 1, 1, 2, 2)
	v, err := s.ViewAt(1)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	defer func() {
		if r := recover(); r != "mine" {
			t.Errorf("recovered %v", r)
		}
	}()
	err = v.Scan(nil, nil, func(_, _ []byte) error { panic("mine") })
	t.Errorf("scan returned %v", err)
}

func TestOptionsValidate(t *testing.T) {
	if err := (Options{}).Validate(); err != nil {
		t.Error(err)
	}
	for _, o := range []Options{{MemTableBytes: minMemTableBytes - 1}, {Memtables: -1}, {Compactors: 1}, {BlockCacheBytes: 1}, {IndexCacheBytes: 1}} {
		if o.Validate() == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// TestBytesOfAnEarlierRelease: if the applied state lacks the byte count, it is
// computed from the entity rows.
func TestBytesOfAnEarlierRelease(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	var b Batch
	for id, bytes := range map[string]uint64{"a": 500, "b": 20} {
		key := AppendEntityID(AppendPrefix(nil, 3, 0, ClassEntity), sharding.EntityID{Type: "t", ID: id})
		b.Put(key, AppendHead(nil, &Head{Records: 1, Bytes: bytes}))
	}
	b.Put(AppendPrefix(nil, 3, 0, ClassApplied), AppendApplied(nil, &Applied{Index: 7, Heads: 2})[:appliedWithoutBytes])
	b.Put(AppendPrefix(nil, 4, 0, ClassApplied), AppendApplied(nil, &Applied{Index: 8, Bytes: 9}))
	if err := s.Write(&b, 1); err != nil {
		t.Fatal(err)
	}
	v, err := s.ViewAt(1)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	generations, err := v.Generations()
	if err != nil || len(generations) != 2 || generations[0].Applied.Bytes != 520 || generations[1].Applied.Bytes != 9 {
		t.Errorf("%+v %v", generations, err)
	}
}
