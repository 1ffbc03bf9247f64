package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
)

// strictly does a strict read and fails the test on an error.
func strictly(t *testing.T, s *Store, key []byte, at uint64) (string, bool) {
	t.Helper()
	body, found, err := s.StrictGet(key, at)
	if err != nil {
		t.Fatalf("%s at %d: %v", DescribeKey(key), at, err)
	}
	return string(body), found
}

// TestStrictGetReadsAsAView: without damage, a strict read returns the same
// result as a read of a view, at every version, for values and deletions in
// memtables and in tables.
func TestStrictGetReadsAsAView(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, small)
	rng := rand.New(rand.NewPCG(1, 1))
	const keys, versions = 60, 40
	history := make([]map[string]string, versions+1)
	history[0] = map[string]string{}
	for version := 1; version <= versions; version++ {
		now := map[string]string{}
		for k, v := range history[version-1] {
			now[k] = v
		}
		var b Batch
		for range 12 {
			k := key(1, rng.IntN(keys))
			if rng.IntN(3) == 0 {
				b.Delete(k)
				delete(now, string(k))
				continue
			}
			now[string(k)] = fmt.Sprintf("%d of %d: %s", rng.Uint64(), version, noise(2000))
			b.Put(k, []byte(now[string(k)]))
		}
		history[version] = now
		if err := s.Write(&b, uint64(version)); err != nil {
			t.Fatal(err)
		}
		if version == versions*2/3 {
			closeStore(t, s)
			s = open(t, dir, small)
		}
	}
	if len(s.db.Tables()) == 0 {
		t.Fatal("there is no table")
	}
	deleted := 0
	for at, want := range history {
		for n := range keys + 5 {
			body, found := strictly(t, s, key(1, n), uint64(at))
			if w, there := want[string(key(1, n))]; found != there || body != w {
				t.Fatalf("key %d at version %d: found %t, want %t", n, at, found, there)
			}
			if !found {
				deleted++
			}
		}
	}
	if deleted == 0 {
		t.Fatal("no key was deleted")
	}
}

// flipTable flips one bit anywhere in a file that is in use.
func flipTable(t *testing.T, name string, rng *rand.Rand) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b, at := make([]byte, 1), rng.Int64N(fi.Size())
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << rng.IntN(8)
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// twoVersions creates a store with two tables, one with version 1 and one with
// version 2. Every other key is only in the second table.
func twoVersions(t *testing.T, keys int) (s *Store, bodies [3][]string) {
	t.Helper()
	dir := t.TempDir()
	s = open(t, dir, small)
	fill := noise(1 << 16)
	rng := rand.New(rand.NewPCG(7, 7))
	for version := 1; version <= 2; version++ {
		var b Batch
		for n := range keys {
			at := rng.IntN(len(fill) - 300)
			body := fmt.Sprintf("%d %s%s", version, fill[at:at+100], bytes.Repeat([]byte("ab"), 100))
			bodies[version] = append(bodies[version], body)
			if version == 2 || n%2 == 0 {
				b.Put(key(1, n), []byte(body))
			}
		}
		if err := s.Write(&b, uint64(version)); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		s = open(t, dir, small)
	}
	return s, bodies
}

func tableNames(t *testing.T, s *Store) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(s.Dir(), "*.sst"))
	if err != nil || len(names) == 0 {
		t.Fatal("no tables", err)
	}
	return names
}

// TestStrictGetNamesTheTableThatHidesAKey: if flipped bits make a view miss a
// key or return an older version, a strict read returns the right value or
// names the file.
func TestStrictGetNamesTheTableThatHidesAKey(t *testing.T) {
	const keys = 3000
	absent, older, named := 0, 0, 0
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s, bodies := twoVersions(t, keys)
		for range 10 {
			names := tableNames(t, s)
			flipTable(t, names[rng.IntN(len(names))], rng)
		}
		view, err := s.ViewAt(2)
		if err != nil {
			t.Fatal(err)
		}
		for n := range keys {
			var got string
			found, err := view.Get(key(1, n), func(body []byte) error {
				got = string(body)
				return nil
			})
			if err == nil && found && got == bodies[2][n] {
				continue
			}
			switch {
			case err == nil && found:
				older++
			case err == nil:
				absent++
			}
			body, found, err := s.StrictGet(key(1, n), 2)
			var damage *DamageError
			switch {
			case errors.As(err, &damage) && filepath.Ext(damage.Where) == ".sst":
				named++
			case err != nil:
				t.Fatalf("key %d: %v", n, err)
			case !found || string(body) != bodies[2][n]:
				t.Fatalf("key %d is proven to be what it is not: found %t", n, found)
			}
		}
		if named > 0 {
			if err := s.strictCheck(key(1, 0)[:prefixBytes]); !errors.Is(err, journal.ErrDamaged) {
				t.Errorf("the tables of the shard are said to be whole: %v", err)
			}
		}
		if err := s.strictCheck(AppendPrefix(nil, 2, 0, ClassMeta)); err != nil {
			t.Errorf("tables of another shard: %v", err)
		}
		view.Close()
	}
	t.Logf("of what a view says wrong %d are older values and %d are not found; %d strict reads name a table", older, absent, named)
	if older == 0 || absent == 0 || named == 0 {
		t.Fatal("nothing was tried")
	}
}

// TestStrictGetWhileTablesAreMerged: tables replaced during the read are not
// damage.
func TestStrictGetWhileTablesAreMerged(t *testing.T) {
	s := open(t, t.TempDir(), Options{MemTableBytes: minMemTableBytes})
	fill := noise(1 << 20)
	var written sync.WaitGroup
	stop := make(chan struct{})
	put := func(version uint64) {
		var b Batch
		for n := range 100 {
			at := rand.IntN(len(fill) - 2000)
			b.Put(key(1, n), fmt.Appendf(nil, "%d %s", version, fill[at:at+2000]))
		}
		if err := s.Write(&b, version); err != nil {
			t.Error(err)
		}
		if version > 2 {
			s.SetDiscard(version - 2)
		}
	}
	put(1)
	written.Go(func() {
		for version := uint64(2); ; version++ {
			select {
			case <-stop:
				return
			default:
				put(version)
			}
		}
	})
	first := s.db.Tables()
	merged := func() bool {
		now := s.db.Tables()
		return slices.ContainsFunc(first, func(was badger.TableInfo) bool {
			return !slices.ContainsFunc(now, func(is badger.TableInfo) bool { return is.ID == was.ID })
		})
	}
	for n := 0; n < 200 || !merged(); n++ {
		if body, found := strictly(t, s, key(1, rand.IntN(100)), s.MaxVersion()); !found || len(body) < 2000 {
			t.Error("a key that is always there is not found")
		}
		if err := s.strictCheck(key(1, 0)); err != nil {
			t.Error(err)
		}
		if len(first) < newTables {
			first = s.db.Tables()
		}
	}
	close(stop)
	written.Wait()
}

// badSectors is a disk on which one file cannot be read.
type badSectors struct {
	disk.OS
	name atomic.Value
}

type badFile struct{ disk.File }

func (badFile) ReadAt([]byte, int64) (int, error) {
	return 0, &os.PathError{Op: "read", Path: "/data/x", Err: syscall.EIO}
}

func (d *badSectors) OpenFile(name string, access disk.Access) (disk.File, error) {
	f, err := d.OS.OpenFile(name, access)
	if err == nil && filepath.Base(name) == d.name.Load() {
		return badFile{f}, nil
	}
	return f, err
}

// TestUnreadableTablesAreNamed: strict reads, and the next Open, name an
// unreadable table in their errors.
func TestUnreadableTablesAreNamed(t *testing.T) {
	made, _ := twoVersions(t, 100)
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(made.Dir())); err != nil {
		t.Fatal(err)
	}
	bad, opts := &badSectors{}, small
	opts.Disk = bad
	s := open(t, dir, opts)
	name := filepath.Base(tableNames(t, s)[0])
	bad.name.Store(name)
	_, _, strict := s.StrictGet(key(1, 6), 2)
	check := s.strictCheck(key(1, 6))
	closeStore(t, s)
	_, start := Open(dir, opts)
	for _, err := range []error{strict, check, start} {
		var damage *DamageError
		if !errors.As(err, &damage) || damage.Where != name || strings.Contains(err.Error(), "/data") {
			t.Errorf("%v: want damage in %s", err, name)
		}
	}
}
