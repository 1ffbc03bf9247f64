package disktest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/hostd/hostd/journal/disk"
)

func newDisk(seed uint64) *Crashable { return NewCrashable(rand.New(rand.NewPCG(seed, 0))) }

func create(t *testing.T, fsys disk.FS, name string, size int64) disk.File {
	t.Helper()
	f, err := fsys.Create(name, size)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func write(t *testing.T, f disk.File, data []byte, offset int64) {
	t.Helper()
	if n, err := f.WriteAt(data, offset); n != len(data) || err != nil {
		t.Fatalf("wrote %d of %d, %v", n, len(data), err)
	}
}

func syncAll(t *testing.T, fsys disk.FS, f disk.File) {
	t.Helper()
	if err := errors.Join(f.Sync(), fsys.SyncDir(".")); err != nil {
		t.Fatal(err)
	}
}

// TestSyncedBytesSurvive writes at random, syncs sometimes, and crashes. Each
// sector then has the content of its last sync or of one of the later writes.
func TestSyncedBytesSurvive(t *testing.T) {
	const sectors = 16
	kept, lost := 0, 0
	for seed := range uint64(300) {
		d := newDisk(seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		f := create(t, d, "file", sectors*sectorBytes)
		syncAll(t, d, f)
		possible := make([][]byte, sectors) // the possible values of each sector
		for s := range possible {
			possible[s] = []byte{0}
		}
		for range 1 + rng.IntN(60) {
			if rng.IntN(6) == 0 {
				syncAll(t, d, f)
				for s := range possible {
					possible[s] = possible[s][len(possible[s])-1:]
				}
				continue
			}
			from := rng.IntN(sectors)
			to := from + 1 + rng.IntN(sectors-from)
			value := byte(1 + rng.IntN(255))
			write(t, f, bytes.Repeat([]byte{value}, (to-from)*sectorBytes), int64(from)*sectorBytes)
			for s := from; s < to; s++ {
				possible[s] = append(possible[s], value)
			}
		}
		d.Crash()
		data, err := disk.ReadFile(d, "file")
		if err != nil || len(data) != sectors*sectorBytes {
			t.Fatal(len(data), err)
		}
		torn := 0
		for s := range possible {
			sector := data[s*sectorBytes:][:sectorBytes]
			for _, b := range sector {
				if !bytes.Contains(possible[s], []byte{b}) {
					t.Fatalf("seed %d: sector %d holds %d, never written since the last sync", seed, s, b)
				}
			}
			if !bytes.Equal(sector, bytes.Repeat(sector[:1], sectorBytes)) {
				torn++
			}
			if sector[0] == possible[s][len(possible[s])-1] {
				kept++
			} else {
				lost++
			}
		}
		if torn > 1 {
			t.Errorf("seed %d: %d sectors torn, only the last write may be", seed, torn)
		}
	}
	if kept == 0 || lost == 0 {
		t.Errorf("%d sectors kept and %d lost", kept, lost)
	}
}

// TestNamesNeedSyncDir crashes after directory changes. Each change is kept in
// some runs and lost in other runs.
func TestNamesNeedSyncDir(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(300) {
		d := newDisk(seed)
		for _, name := range []string{"old", "gone", "replaced"} {
			f := create(t, d, name, 0)
			write(t, f, []byte(name), 0)
			syncAll(t, d, f)
		}
		create(t, d, "made", 0)
		if err := errors.Join(d.Rename("old", "new"), d.Remove("gone"), d.Rename("new", "replaced")); err != nil {
			t.Fatal(err)
		}
		d.Crash()
		names, err := d.List(".")
		if err != nil {
			t.Fatal(err)
		}
		content, err := disk.ReadFile(d, "replaced")
		if err != nil {
			t.Fatalf("seed %d: a replaced name vanished: %v", seed, err)
		}
		if got := slices.Contains(names, "old"); got && string(content) == "old" {
			t.Errorf("seed %d: the renamed file has both names", seed)
		}
		outcomes[fmt.Sprint(names, string(content))]++
	}
	if len(outcomes) != 12 {
		t.Errorf("%d outcomes: %v", len(outcomes), outcomes)
	}

	d := newDisk(1)
	create(t, d, "a", 0)
	if err := errors.Join(d.SyncDir("."), d.Rename("a", "b"), d.SyncDir(".")); err != nil {
		t.Fatal(err)
	}
	d.Crash()
	if names, _ := d.List("."); !slices.Equal(names, []string{"b"}) {
		t.Errorf("after syncing: %v", names)
	}
}

func TestSameSeedSameCrash(t *testing.T) {
	run := func() string {
		d := newDisk(5)
		for i := range 20 {
			f := create(t, d, fmt.Sprintf("f%d", i), 4096)
			write(t, f, bytes.Repeat([]byte{byte(i + 1)}, 3000), int64(i*10))
			if i%3 == 0 {
				syncAll(t, d, f)
			}
		}
		d.Crash()
		var b bytes.Buffer
		names, _ := d.List(".")
		for _, name := range names {
			data, _ := disk.ReadFile(d, name)
			fmt.Fprintln(&b, name, data)
		}
		return b.String()
	}
	first := run()
	for range 10 {
		if run() != first {
			t.Fatal("two runs of one seed differ")
		}
	}
}

// TestSyncAfterFailedSyncWritesNothing shows the trap that callers must survive: the
// second sync succeeds and writes nothing.
func TestSyncAfterFailedSyncWritesNothing(t *testing.T) {
	lost := 0
	for seed := range uint64(50) {
		d := newDisk(seed)
		f := create(t, d, "file", 4096)
		syncAll(t, d, f)
		write(t, f, []byte("hello"), 0)
		d.FailSync(1, syscall.EIO)
		if err := f.Sync(); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if data, _ := disk.ReadFile(d, "file"); string(data[:5]) != "hello" {
			t.Fatal("a process must still see what it wrote")
		}
		d.Crash()
		if data, _ := disk.ReadFile(d, "file"); string(data[:5]) != "hello" {
			lost++
		}
	}
	if lost == 0 || lost == 50 {
		t.Errorf("%d of 50 lost", lost)
	}
}

func TestPowerCutFailsEveryOperation(t *testing.T) {
	d := newDisk(3)
	f := create(t, d, "file", 100)
	syncAll(t, d, f)
	d.CutAfter(1)
	write(t, f, []byte("in time"), 0)
	ops := []struct {
		name string
		do   func() error
	}{
		{"write", func() error { _, err := f.WriteAt([]byte("late"), 50); return err }},
		{"sync", f.Sync},
		{"read", func() error { _, err := f.ReadAt(make([]byte, 1), 0); return err }},
		{"open", func() error { _, err := d.OpenFile("file", disk.ReadOnly); return err }},
		{"create", func() error { _, err := d.Create("x", 0); return err }},
		{"rename", func() error { return d.Rename("file", "x") }},
		{"remove", func() error { return d.Remove("file") }},
		{"list", func() error { _, err := d.List("."); return err }},
		{"stat", func() error { _, err := d.Stat("file"); return err }},
		{"mkdir", func() error { return d.MkdirAll("a/b") }},
		{"sync directory", func() error { return d.SyncDir(".") }},
		{"size", func() error { _, err := f.Size(); return err }},
		{"truncate", func() error { return f.Truncate(0) }},
		{"free", func() error { _, err := d.FreeBytes("."); return err }},
	}
	for _, op := range ops {
		if err := op.do(); !errors.Is(err, ErrPowerCut) {
			t.Errorf("%s: %v", op.name, err)
		}
	}
	d.Crash()
	if err := f.Sync(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a file of before the crash: %v", err)
	}
	if _, err := d.OpenFile("file", disk.ReadOnly); err != nil {
		t.Error(err)
	}
}

func TestKillLosesNothing(t *testing.T) {
	d := newDisk(3)
	f := create(t, d, "file", 100)
	write(t, f, []byte("hello"), 0)
	d.Kill()
	if data, err := disk.ReadFile(d, "file"); err != nil || string(data[:5]) != "hello" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a file of the killed process: %v", err)
	}
}

func TestLimitSpaceFailsWrites(t *testing.T) {
	d := newDisk(4)
	d.LimitSpace(1000)
	f := create(t, d, "file", 600)
	if free, _ := d.FreeBytes("."); free != 400 {
		t.Errorf("%d bytes free", free)
	}
	if _, err := d.Create("other", 401); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("create: %v", err)
	}
	write(t, f, make([]byte, 600), 0)
	if n, err := f.WriteAt(make([]byte, 500), 550); n != 450 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("wrote %d, %v", n, err)
	}
	if err := f.Truncate(1001); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("truncate: %v", err)
	}
	d.LimitSpace(-1)
	write(t, f, make([]byte, 5000), 0)
}

func TestReadFaults(t *testing.T) {
	d := newDisk(5)
	f := create(t, d, "file", 3000)
	syncAll(t, d, f)
	if err := errors.Join(d.FailRead("file", 1000, 10), d.Corrupt("file", 2000, 0x40)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		offset int64
		length int
		fails  bool
	}{{0, 1000, false}, {0, 1001, true}, {1009, 1, true}, {1010, 1, false}, {500, 2000, true}} {
		if _, err := f.ReadAt(make([]byte, test.length), test.offset); errors.Is(err, syscall.EIO) != test.fails {
			t.Errorf("%d bytes at %d: %v", test.length, test.offset, err)
		}
	}
	d.Crash()
	f, err := d.OpenFile("file", disk.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, 2000); b[0] != 0x40 || err != nil {
		t.Errorf("read %x, %v", b, err)
	}
	if _, err := f.WriteAt(b, 0); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("write to a file opened to read: %v", err)
	}
	if n, err := f.ReadAt(make([]byte, 10), 2995); n != 5 || err != io.EOF {
		t.Errorf("read %d across the end, %v", n, err)
	}
}

func TestShortWrite(t *testing.T) {
	d := newDisk(6)
	f := create(t, d, "file", 0)
	d.FailWrite(2, 3, syscall.EIO)
	write(t, f, []byte("first"), 0)
	if n, err := f.WriteAt([]byte("second"), 5); n != 3 || !errors.Is(err, syscall.EIO) {
		t.Errorf("wrote %d, %v", n, err)
	}
	if data, _ := disk.ReadFile(d, "file"); string(data) != "firstsec" {
		t.Errorf("%q", data)
	}
}

// TestClonesAreIndependent: a clone has the files that a process would see, and
// a later write to one disk does not affect the other disk.
func TestClonesAreIndependent(t *testing.T) {
	d := newDisk(1)
	if err := d.MkdirAll("a"); err != nil {
		t.Fatal(err)
	}
	write := func(d *Crashable, text string) {
		t.Helper()
		f, err := d.OpenFile("a/f", disk.ReadWrite)
		if errors.Is(err, fs.ErrNotExist) {
			f, err = d.Create("a/f", 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte(text), 0); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), d.SyncDir("a"), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(d *Crashable, want string) {
		t.Helper()
		f, err := d.OpenFile("a/f", disk.ReadOnly)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, 0); err != nil || string(got) != want {
			t.Errorf("the file holds %q, %v; want %q", got, err, want)
		}
		f.Close()
	}
	write(d, "before")
	copied := d.Clone()
	write(d, "of one")
	again := copied.Clone()
	write(copied, "others")
	for _, d := range []*Crashable{d, copied, again} {
		d.Crash()
	}
	holds(d, "of one")
	holds(copied, "others")
	holds(again, "before")
}
