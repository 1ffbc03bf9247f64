package testkit

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// buildsVariable names a directory that the test processes of one run share:
// what one of them has built is not built again by the others. Nobody looks
// whether it is still what the sources give, so it lives no longer than a run.
// Without it the processes that one go command starts share a directory.
const buildsVariable = "HOSTD_TEST_BUILDS"

// A run is the directory that the processes of one go command share. Each of
// them holds its lock; whoever ends last removes it.
type run struct {
	dir  string
	lock *os.File
}

var thisRun = sync.OnceValues(func() (*run, error) {
	r := &run{dir: filepath.Join(os.TempDir(), fmt.Sprintf("hostd-test-%d-%d", os.Getuid(), os.Getppid()))}
	for {
		joined, err := r.join()
		if joined || err != nil {
			return r, err
		}
	}
})

// join takes the run's lock and makes its directory; false when another process
// has removed the lock meanwhile. Nobody holds the lock of a directory that a
// killed run left behind: it begins empty.
func (r *run) join() (bool, error) {
	lock, err := os.OpenFile(r.dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	fd, alone := int(lock.Fd()), true
	if err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		alone, err = false, syscall.Flock(fd, syscall.LOCK_SH)
	}
	if err != nil {
		return false, errors.Join(err, lock.Close())
	}
	opened, err := lock.Stat()
	if err != nil {
		return false, errors.Join(err, lock.Close())
	}
	if there, err := os.Stat(lock.Name()); err != nil || !os.SameFile(opened, there) {
		return false, lock.Close()
	}
	if alone {
		err = errors.Join(os.RemoveAll(r.dir), syscall.Flock(fd, syscall.LOCK_SH))
	}
	r.lock = lock
	return true, errors.Join(err, os.MkdirAll(r.dir, 0o700))
}

// leave removes the directory and the lock when no other process holds it.
func (r *run) leave() {
	if syscall.Flock(int(r.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		os.RemoveAll(r.dir)
		os.Remove(r.lock.Name())
	}
	r.lock.Close()
}

// Main runs the tests of a package and removes what was built for them, unless
// others of the same run go on. Packages that start nodes call it from their
// TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
func Main(m *testing.M) int {
	code := m.Run()
	if os.Getenv(buildsVariable) == "" {
		if r, err := thisRun(); err == nil {
			r.leave()
		}
	}
	return code
}

// builds is where what is built for tests is kept.
func builds() (string, error) {
	if dir := os.Getenv(buildsVariable); dir != "" {
		return dir, os.MkdirAll(dir, 0o700)
	}
	r, err := thisRun()
	if err != nil {
		return "", err
	}
	return r.dir, nil
}

// builtOnce returns the file of a name among the builds, made by build into
// the path it is given unless it is there.
func builtOnce(name string, build func(path string) error) (string, error) {
	dir, err := builds()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	err = Locked(dir, name, func() error {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		if err := build(path + ".new"); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	})
	return path, err
}

// Locked holds a lock, a file name.lock in dir, against other test processes.
func Locked(dir, name string, do func() error) error {
	lock, err := os.OpenFile(filepath.Join(dir, name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	return do()
}

// cacheDir is the directory of compiled modules, among the builds and in a
// data directory; checksums is its list of files.
const (
	cacheDir = "cache"
	seals    = "seals"
	cacheKey = "cache.key" // beside the directory of the cache
	passed   = "passed"
)

// ShareCache lets a node that is not started yet begin with what others have
// compiled, and keeps what it compiles itself. Its data directory is of the
// test's own, and it has stopped when the test ends.
func ShareCache(t testing.TB, dataDir string) {
	t.Helper()
	if err := GiveCache(dataDir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := KeepCache(dataDir); err != nil && !t.Failed() {
			t.Logf("nothing is kept of what a node compiled: %v", err)
		}
	})
}

// GiveCache gives a data directory that no node has used yet the modules that
// nodes of this run have compiled before: it begins as after a restart.
// Compiling is most of what a node does that serves a short test.
func GiveCache(dataDir string) error {
	dir, err := builds()
	if err != nil {
		return err
	}
	for _, used := range []string{"node.json", cacheDir} {
		if _, err := os.Stat(filepath.Join(dataDir, used)); err == nil {
			return nil
		}
	}
	return Locked(dir, cacheDir, func() error {
		if err := giveKey(dir, dataDir); err != nil {
			return err
		}
		from := filepath.Join(dir, cacheDir)
		if roomy, err := hasRoom(dataDir, from); err != nil || !roomy {
			return err
		}
		return os.CopyFS(filepath.Join(dataDir, cacheDir), os.DirFS(from))
	})
}

// hasRoom reports that there is a directory and that a copy of it takes an
// eighth of the free space at most: what a small disk of a test holds, the test
// says. In a long run hundreds of megabytes are compiled.
func hasRoom(dataDir, from string) (bool, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dataDir, &stat); err != nil {
		return false, err
	}
	size := uint64(0)
	err := filepath.WalkDir(from, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += uint64(info.Size())
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return size <= stat.Bavail*uint64(stat.Bsize)/8, err
}

// giveKey gives a data directory the key that all of the run seal what they
// compile with.
func giveKey(dir, dataDir string) error {
	key, err := os.ReadFile(filepath.Join(dir, cacheKey))
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, 32)
		rand.Read(key)
		err = os.WriteFile(filepath.Join(dir, cacheKey), key, 0o600)
	}
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(dataDir, 0o700), os.WriteFile(filepath.Join(dataDir, cacheKey), key, 0o600))
}

// KeepCache keeps the modules that a node has compiled, which is stopped now,
// for those to come.
func KeepCache(dataDir string) error {
	dir, err := builds()
	if err != nil {
		return err
	}
	from, to := filepath.Join(dataDir, cacheDir), filepath.Join(dir, cacheDir)
	list, err := os.ReadFile(filepath.Join(from, seals))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return Locked(dir, cacheDir, func() error {
		own, err := os.ReadFile(filepath.Join(dataDir, cacheKey))
		shared, missing := os.ReadFile(filepath.Join(dir, cacheKey))
		if err != nil || missing != nil || !bytes.Equal(own, shared) {
			return nil // nobody else could use it
		}
		kept, err := os.ReadFile(filepath.Join(to, seals))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		var names []string
		for line := range bytes.Lines(list) {
			if _, name, ok := strings.Cut(strings.TrimSpace(string(line)), " "); ok && !bytes.Contains(kept, []byte(" "+name+"\n")) {
				names, kept = append(names, name), append(kept, line...)
			}
		}
		if len(names) == 0 {
			return nil
		}
		marks, err := filepath.Glob(filepath.Join(from, passed, "*"))
		if err != nil {
			return err
		}
		for _, m := range marks {
			names = append(names, filepath.Join(passed, filepath.Base(m)))
		}
		for _, name := range names {
			data, err := os.ReadFile(filepath.Join(from, name))
			if err != nil {
				return err
			}
			file := filepath.Join(to, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, data, 0o600)); err != nil {
				return err
			}
		}
		return os.WriteFile(filepath.Join(to, seals), kept, 0o600)
	})
}
