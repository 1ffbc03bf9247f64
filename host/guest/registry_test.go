package guest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
)

func open(t *testing.T, dir string) *Registry {
	t.Helper()
	r, err := OpenRegistry(RegistryOptions{Dir: dir, ModuleBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func put(t *testing.T, r *Registry, wasm string) journal.Digest {
	t.Helper()
	digest, _, err := r.Put([]byte(wasm))
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func TestPutAndGetAcrossRestarts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "modules")
	r := open(t, dir)
	digest, stored, err := r.Put([]byte("one"))
	if err != nil || !stored {
		t.Fatalf("first put: %v, %v", stored, err)
	}
	if digest.String() != "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed" {
		t.Errorf("digest is %v", digest)
	}
	if again, stored, err := r.Put([]byte("one")); err != nil || stored || again != digest {
		t.Errorf("second put: %v, %v, %v", again, stored, err)
	}
	other := put(t, r, "two")

	r = open(t, dir)
	for d, want := range map[journal.Digest]string{digest: "one", other: "two"} {
		if got, err := r.Get(d); err != nil || string(got) != want {
			t.Errorf("get: %q, %v, want %q", got, err, want)
		}
		if !r.Has(d) {
			t.Errorf("%v is said to be absent", d)
		}
	}
	digests, err := r.List()
	if err != nil || len(digests) != 2 || !slices.Contains(digests, digest) || digests[0].String() > digests[1].String() {
		t.Errorf("list: %v, %v", digests, err)
	}
	absent := DigestOf([]byte("absent"))
	if _, err := r.Get(absent); !errors.Is(err, ErrModuleNotFound) || r.Has(absent) {
		t.Errorf("absent: %v, %v", err, r.Has(absent))
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory has mode %v, %v", info.Mode(), err)
	}
	if info, err = os.Stat(filepath.Join(dir, digest.String()+".wasm")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file has mode %v, %v", info.Mode(), err)
	}
}

func TestModuleOverSizeLimitIsRejected(t *testing.T) {
	r := open(t, t.TempDir())
	if _, _, err := r.Put(make([]byte, 1000)); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	digest, _, err := r.Put(make([]byte, 1001))
	if !errors.Is(err, errModuleTooLarge) || r.Has(digest) {
		t.Errorf("over the limit: %v", err)
	}
	if got, err := r.Get(DigestOf(make([]byte, 1000))); err != nil || len(got) != 1000 {
		t.Errorf("get at the limit: %d bytes, %v", len(got), err)
	}
}

// TestDamagedFileIsRepairedByPut damages a file in each way and puts the module
// again.
func TestDamagedFileIsRepairedByPut(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	digest := put(t, r, "module")
	file := filepath.Join(dir, digest.String()+".wasm")
	for name, content := range map[string]string{
		"bit flipped": "modulf", "cut off": "modul", "empty": "", "longer": "module!", "over the limit": strings.Repeat("module", 1000),
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := r.Get(digest)
		var damaged *DamagedModuleError
		if !errors.As(err, &damaged) || damaged.Digest != digest {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if copyErr := r.Copy(new(bytes.Buffer), digest); !errors.As(copyErr, &damaged) {
			t.Errorf("%s: the copy ends with %v", name, copyErr)
		}
		if text := err.Error(); !strings.Contains(text, digest.String()+".wasm") || !strings.Contains(text, "remove it") || strings.Contains(text, dir) {
			t.Errorf("%s: the error does not say what to do, or reveals the path: %s", name, text)
		}
		if _, stored, err := r.Put([]byte("module")); err != nil || !stored {
			t.Errorf("%s: put again: %v, %v", name, stored, err)
		}
		if got, err := r.Get(digest); err != nil || string(got) != "module" {
			t.Errorf("%s: after repair: %q, %v", name, got, err)
		}
	}
}

// TestLeftoversOfACrash opens a directory in which a put was interrupted
// before its rename, and which contains unrelated files. Only the temporary
// files must be removed, and List must return only the module.
func TestLeftoversOfACrash(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	digest := put(t, r, "module")
	for _, name := range []string{digest.String() + ".123.tmp", "x.tmp", "README", digest.String(), strings.ToUpper(digest.String()) + ".wasm", "abc.wasm"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("mod"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r = open(t, dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".tmp") {
			t.Errorf("%s is still there", entry.Name())
		}
	}
	if len(entries) != 5 {
		t.Errorf("%d files are there, want the module and 4 that are not the registry's", len(entries))
	}
	if digests, err := r.List(); err != nil || !slices.Equal(digests, []journal.Digest{digest}) {
		t.Errorf("list: %v, %v", digests, err)
	}
	if got, err := r.Get(digest); err != nil || string(got) != "module" {
		t.Errorf("get: %q, %v", got, err)
	}
}

func TestFailedPutLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	digest := DigestOf([]byte("module"))
	if err := os.Mkdir(filepath.Join(dir, digest.String()+".wasm"), 0o700); err != nil { // a directory of this name makes the rename fail
		t.Fatal(err)
	}
	if _, stored, err := r.Put([]byte("module")); err == nil || stored {
		t.Errorf("put: %v, %v", stored, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v are there, want the directory in the way alone", entries, err)
	}
	if r.Has(digest) {
		t.Error("a directory passes for a module")
	}
}

func TestConcurrentPuts(t *testing.T) {
	r := open(t, t.TempDir())
	wasm := bytes.Repeat([]byte{7}, 900)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			if digest, _, err := r.Put(wasm); err != nil {
				t.Error(err)
			} else if got, err := r.Get(digest); err != nil || !bytes.Equal(got, wasm) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	group.Wait()
	if entries, err := os.ReadDir(r.dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestModuleWithoutRoomIsNotStored checks that a module is stored only if there
// is room, and that a module that is there already needs none.
func TestModuleWithoutRoomIsNotStored(t *testing.T) {
	r := open(t, t.TempDir())
	full := errors.New("full")
	noRoom := func() error { return full }
	digest, at, err := r.PutIf([]byte("module"), noRoom)
	if !errors.Is(err, full) || !at.IsZero() || r.Has(digest) || r.Size(digest) != 0 {
		t.Errorf("without room: %v, at %v, stored %v", err, at, r.Has(digest))
	}
	if _, at, err = r.PutIf([]byte("module"), func() error { return nil }); err != nil || at.IsZero() || r.Size(digest) != 6 {
		t.Errorf("with room: %v, at %v, %d bytes", err, at, r.Size(digest))
	}
	if _, again, err := r.PutIf([]byte("module"), noRoom); err != nil || !again.IsZero() {
		t.Errorf("put again: %v, at %v", err, again)
	}
	if gone, err := r.RemoveOlder(digest, at.Add(time.Nanosecond)); gone || err != nil {
		t.Errorf("a file that another upload has put: removed %v, %v", gone, err)
	}
}

// TestRemoveOlder checks that a file is removed only if nobody has put its
// module since.
func TestRemoveOlder(t *testing.T) {
	r := open(t, t.TempDir())
	digest, _, err := r.Put([]byte("module"))
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if gone, err := r.RemoveOlder(digest, old); gone || err != nil {
		t.Errorf("a new file: removed %v, %v", gone, err)
	}
	if err := os.Chtimes(r.path(digest), old, old); err != nil {
		t.Fatal(err)
	}
	if _, stored, err := r.Put([]byte("module")); stored || err != nil {
		t.Errorf("put again: stored %v, %v", stored, err)
	}
	if gone, err := r.RemoveOlder(digest, old.Add(time.Minute)); gone || err != nil || !r.Has(digest) {
		t.Errorf("a file that was put again: removed %v, %v", gone, err)
	}
	if gone, err := r.RemoveOlder(digest, time.Now().Add(time.Minute)); !gone || err != nil || r.Has(digest) {
		t.Errorf("an old file: removed %v, %v", gone, err)
	}
	if gone, err := r.RemoveOlder(digest, time.Now().Add(time.Minute)); gone || err != nil {
		t.Errorf("no file: removed %v, %v", gone, err)
	}
}

// pieces records the writes of a Copy.
type pieces [][]byte

func (p *pieces) Write(b []byte) (int, error) {
	*p = append(*p, bytes.Clone(b))
	return len(b), nil
}

// TestCopyWritesBoundedPieces checks that a Copy writes pieces of bounded
// size, so that slow or many readers take little memory.
func TestCopyWritesBoundedPieces(t *testing.T) {
	r, err := OpenRegistry(RegistryOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 5<<20 + 7} {
		wasm := bytes.Repeat([]byte("module "), size/7+1)[:size]
		var got pieces
		if err := r.Copy(&got, put(t, r, string(wasm))); err != nil || !bytes.Equal(bytes.Join(got, nil), wasm) {
			t.Errorf("%d bytes: %d bytes, %v", size, len(bytes.Join(got, nil)), err)
		}
		for _, piece := range got {
			if len(piece) > 64<<10 {
				t.Errorf("%d bytes: a piece has %d", size, len(piece))
			}
		}
	}
	if err := r.Copy(new(pieces), DigestOf([]byte("absent"))); !errors.Is(err, ErrModuleNotFound) {
		t.Error(err)
	}
	full := errors.New("full")
	if err := r.Copy(failing{full}, put(t, r, "module")); !errors.Is(err, full) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
