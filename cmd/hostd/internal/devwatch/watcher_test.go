package devwatch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(time.Now().String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// watched returns a watcher of a directory with Go sources.
func watched(t *testing.T, dir string) *watcher {
	t.Helper()
	w, err := newWatcher(dir, []string{".go"}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func await(t *testing.T, w *watcher, what string) {
	t.Helper()
	select {
	case <-w.changed:
	case <-time.After(time.Minute):
		t.Fatalf("%s is no change", what)
	}
}

// TestSourcesAreWatched checks the sources of a project, including sources
// in directories that are created later.
func TestSourcesAreWatched(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	w := watched(t, dir)
	for _, name := range []string{"main.go", "below/more.go", "later/deep/new.go"} {
		write(t, filepath.Join(dir, name))
		await(t, w, name)
	}
	write(t, filepath.Join(dir, "later/deep/again.go"))
	await(t, w, "later/deep/again.go")
	if err := os.Remove(filepath.Join(dir, "main.go")); err != nil {
		t.Fatal(err)
	}
	await(t, w, "the end of main.go")
}

// TestOtherFilesAreNotWatched checks that other files and skipped directories cause
// no change.
func TestOtherFilesAreNotWatched(t *testing.T) {
	dir := t.TempDir()
	others := []string{"node_modules", "hostd-sdk", ".git", "target"}
	for _, d := range append(others, "below") {
		write(t, filepath.Join(dir, d, "a.go"))
	}
	w, err := newWatcher(dir, []string{".go"}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	list := w.events.WatchList()
	slices.Sort(list)
	if err := w.close(); err != nil { // the code below no longer runs on the watcher's goroutine
		t.Fatal(err)
	}
	if want := []string{dir, filepath.Join(dir, "below")}; !slices.Equal(list, want) {
		t.Errorf("%q are watched, want %q", list, want)
	}
	for _, name := range []string{"lamp.wasm", ".main.go.swp", ".hidden.go", "README.md", "main.go~"} {
		if w.counts(fsnotify.Event{Name: filepath.Join(dir, name), Op: fsnotify.Write}) {
			t.Errorf("%s is a source", name)
		}
	}
	for _, name := range others {
		if w.counts(fsnotify.Event{Name: filepath.Join(dir, name), Op: fsnotify.Create}) {
			t.Errorf("%s has sources", name)
		}
	}
	main := filepath.Join(dir, "main.go")
	if w.counts(fsnotify.Event{Name: main, Op: fsnotify.Chmod}) || !w.counts(fsnotify.Event{Name: main, Op: fsnotify.Remove}) {
		t.Error("a mode is a change, or the end of a file is none")
	}
}

// TestSimultaneousChangesAreMerged checks that many files that are written at once, by an
// editor or by changing a branch, are reported as one change.
func TestSimultaneousChangesAreMerged(t *testing.T) {
	dir := t.TempDir()
	w := watched(t, dir)
	for i := range 200 {
		write(t, filepath.Join(dir, fmt.Sprintf("f%d.go", i)))
	}
	await(t, w, "many files")
	if cap(w.changed) != 1 {
		t.Errorf("%d changes may wait", cap(w.changed))
	}
}

// TestWatchingIsBounded checks that a directory that is too large for a project
// is rejected.
func TestWatchingIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range maxDirectories {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint("d", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := newWatcher(dir, nil, func(error) {}); err == nil || !strings.Contains(err.Error(), "more than 1000 directories") {
		t.Errorf("%v", err)
	}
	if _, err := newWatcher(filepath.Join(dir, "absent"), nil, func(error) {}); err == nil {
		t.Error("a directory that is not there is watched")
	}
}
