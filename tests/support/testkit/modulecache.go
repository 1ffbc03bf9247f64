package testkit

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// cacheDir is the directory of compiled modules, both in a data directory and
// in the shared build directory. The file "seals" in it lists the compiled
// files with their seals, and the directory "passed" has a file for each module
// that has passed its trial.
const (
	cacheDir = "cache"
	seals    = "seals"
	passed   = "passed"
	cacheKey = "cache.key" // in the parent directory of the cache
	makers   = "makers"    // in the build directory: the packages whose nodes compiled each file
)

// testPackage returns the import path of the running tests.
var testPackage = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Path == "" {
		return "unknown"
	}
	return info.Path
})

// given holds the compiled files that each node started with, by data
// directory.
var given sync.Map

// ShareCache gives a node that is not started yet the modules that other nodes
// have compiled, and shares the modules that it compiles itself when the test
// ends. The data directory must belong to the test, and the node must have
// stopped when the test ends.
func ShareCache(t testing.TB, dataDir string) {
	t.Helper()
	if err := giveCache(testPackage(), dataDir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := keepCache(testPackage(), dataDir); err != nil && !t.Failed() {
			t.Logf("nothing is kept of what a node compiled: %v", err)
		}
	})
}

// ModuleCache returns a directory of compiled modules and its key, for an
// engine that the test closes. It is like ShareCache, but without a node.
func ModuleCache(t testing.TB) (dir string, key []byte) {
	t.Helper()
	data := t.TempDir()
	ShareCache(t, data)
	key, err := os.ReadFile(filepath.Join(data, cacheKey))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(data, cacheDir), key
}

// giveCache copies compiled modules into a data directory that no node has used
// yet, so that the node starts with them, like after a restart. Compilation is
// most of the work of a node in a short test.
//
// It copies only the modules that nodes of this package's tests have compiled
// and modules that at least two packages have compiled. A node reads every module
// that it finds, and a long run compiles hundreds of megabytes, most of which
// this node does not need.
func giveCache(pkg, dataDir string) error {
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
		from, to := filepath.Join(dir, cacheDir), filepath.Join(dataDir, cacheDir)
		made, err := readMakers(dir)
		if err != nil {
			return err
		}
		list, err := readSeals(from)
		if err != nil {
			return err
		}
		maps.DeleteFunc(list, func(name, _ string) bool {
			return len(made[name]) < 2 && !slices.Contains(made[name], pkg)
		})
		if len(list) == 0 {
			return nil
		}
		files := slices.Sorted(maps.Keys(list))
		marks, err := filepath.Glob(filepath.Join(from, passed, "*"))
		if err != nil {
			return err
		}
		for _, m := range marks {
			files = append(files, filepath.Join(passed, filepath.Base(m)))
		}
		if roomy, err := linkAll(from, to, files); err != nil || !roomy {
			return err
		}
		given.Store(dataDir, list)
		return writeSeals(to, list)
	})
}

// linkAll hard-links the files of one directory into another. That is safe
// because nodes replace files of compiled modules and never write to them.
// Between file systems it copies the files, but only if they need at most an
// eighth of the free space, because copies must not fill the small disks that
// some tests use.
func linkAll(from, to string, names []string) (bool, error) {
	size := int64(0)
	for _, name := range names {
		info, err := os.Stat(filepath.Join(from, name))
		if err != nil {
			return false, err
		}
		size += info.Size()
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(to), &stat); err != nil {
		return false, err
	}
	roomy := uint64(size) <= stat.Bavail*uint64(stat.Bsize)/8
	for _, name := range names {
		file := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return false, err
		}
		err := os.Link(filepath.Join(from, name), file)
		switch {
		case err == nil:
		case !roomy:
			return false, os.RemoveAll(to)
		default:
			if err := copyFile(filepath.Join(from, name), file); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// copyFile copies a file. It replaces an existing file instead of writing to
// it, because other processes may have it open or linked.
func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return replaceFile(to, data)
}

func replaceFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(name+".tmp", data, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".tmp", name)
}

// readSeals returns the lines of a seals file, by file name.
func readSeals(dir string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, seals))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	list := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if _, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			list[name] = line
		}
	}
	return list, nil
}

func writeSeals(dir string, list map[string]string) error {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(list)) {
		text.WriteString(list[name])
	}
	return replaceFile(filepath.Join(dir, seals), []byte(text.String()))
}

// readMakers returns the packages whose nodes compiled each file.
func readMakers(dir string) (map[string][]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, makers))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	made := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if pkg, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			made[name] = append(made[name], pkg)
		}
	}
	return made, nil
}

// giveKey gives a data directory the key with which all nodes of the run seal
// compiled modules.
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

// keepCache adds the modules that a stopped node has compiled to the shared
// build directory.
func keepCache(pkg, dataDir string) error {
	dir, err := builds()
	if err != nil {
		return err
	}
	from, to := filepath.Join(dataDir, cacheDir), filepath.Join(dir, cacheDir)
	list, err := readSeals(from)
	if err != nil {
		return err
	}
	if had, ok := given.LoadAndDelete(dataDir); ok {
		maps.DeleteFunc(list, func(name, line string) bool { return had.(map[string]string)[name] == line })
	}
	if len(list) == 0 {
		return nil
	}
	return Locked(dir, cacheDir, func() error {
		own, err := os.ReadFile(filepath.Join(dataDir, cacheKey))
		shared, missing := os.ReadFile(filepath.Join(dir, cacheKey))
		if err != nil || missing != nil || !bytes.Equal(own, shared) {
			return nil // other nodes cannot use modules that are sealed with a different key
		}
		kept, err := readSeals(to)
		if err != nil {
			return err
		}
		marks, err := filepath.Glob(filepath.Join(from, passed, "*"))
		if err != nil {
			return err
		}
		files := slices.Sorted(maps.Keys(list))
		files = slices.DeleteFunc(files, func(name string) bool { return kept[name] != "" })
		for _, m := range marks {
			name := filepath.Join(passed, filepath.Base(m))
			if _, err := os.Stat(filepath.Join(to, name)); err != nil {
				files = append(files, name)
			}
		}
		for _, name := range files {
			if err := copyFile(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
				return err
			}
		}
		made, err := readMakers(dir)
		if err != nil {
			return err
		}
		var text strings.Builder
		for name, line := range list {
			if kept[name] == "" {
				kept[name] = line
			}
			if !slices.Contains(made[name], pkg) {
				made[name] = append(made[name], pkg)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(made)) {
			for _, pkg := range made[name] {
				text.WriteString(pkg + " " + name + "\n")
			}
		}
		return errors.Join(writeSeals(to, kept), replaceFile(filepath.Join(dir, makers), []byte(text.String())))
	})
}
