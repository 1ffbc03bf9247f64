package testkit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// buildsVariable names a directory that the test processes of one run share, so
// that each program and guest is built once. Nothing checks that a build still
// matches its sources, so the directory must not outlive the run. If the
// variable is unset, the processes that one go command starts share a
// directory.
const buildsVariable = "HOSTD_TEST_BUILDS"

// A run is the directory that the processes of one go command share. Each
// process holds a shared lock; the last process to end removes the directory.
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

// join acquires the run's lock and creates its directory. It returns false if
// another process has removed the lock file in the meantime. If nobody else
// holds the lock, the directory is left over from a killed run, and join
// empties it.
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

// leave removes the directory and the lock file unless another process holds
// the lock.
func (r *run) leave() {
	if syscall.Flock(int(r.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		os.RemoveAll(r.dir)
		os.Remove(r.lock.Name())
	}
	r.lock.Close()
}

// Main runs the tests of a package and removes the builds unless other
// processes of the same run still use them. Packages that start nodes call it
// from their TestMain:
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

// builds returns the directory of builds for tests.
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

// builtOnce returns the path of the named file in the build directory. If the
// file does not exist, builtOnce calls build to create it at the given path.
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

// Locked calls do while holding the lock file name.lock in dir, which excludes
// other test processes.
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
