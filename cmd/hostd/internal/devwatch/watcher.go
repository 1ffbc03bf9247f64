package devwatch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

const (
	// settle is how long nothing must change before a project is built, and
	// settleMost the limit of that wait.
	settle     = 150 * time.Millisecond
	settleMost = 2 * time.Second
	// maxDirectories limits the watched directories of a project.
	maxDirectories = 1000
)

// skipped are directories that contain no sources of a project.
var skipped = []string{"node_modules", "target", "build", "dist", "hostd-dev", "hostd-sdk"}

// watcher reports changes of a project's sources. Its goroutine ends with
// close.
type watcher struct {
	events   *fsnotify.Watcher
	endings  []string
	watched  int
	changed  chan struct{} // one slot: changes since the last receive count as one
	done     chan struct{}
	problems func(error)
}

// newWatcher watches a directory and its subdirectories. endings are the file
// name endings of sources. problems is called for later errors, on the
// watcher's goroutine.
func newWatcher(dir string, endings []string, problems func(error)) (*watcher, error) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	w := &watcher{events: events, endings: endings, changed: make(chan struct{}, 1), done: make(chan struct{}), problems: problems}
	if err := w.add(dir); err != nil {
		return nil, errors.Join(err, events.Close())
	}
	go w.run()
	return w, nil
}

func (w *watcher) close() error {
	err := w.events.Close()
	<-w.done
	return err
}

// add watches a directory and its subdirectories. It ignores a directory that has just
// been removed.
func (w *watcher) add(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, os.ErrNotExist) && path != root:
			return nil
		case err != nil:
			return fmt.Errorf("watch: %w", err)
		case !d.IsDir():
			return nil
		case path != root && (slices.Contains(skipped, d.Name()) || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		}
		if w.watched++; w.watched > maxDirectories {
			return cli.Hint(fmt.Errorf("%s has more than %d directories", root, maxDirectories), "Give the directory of the project only.")
		}
		if err := w.events.Add(path); err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
		return nil
	})
}

// source reports whether a file is a source of the project.
func (w *watcher) source(path string) bool {
	name := filepath.Base(path)
	return !strings.HasPrefix(name, ".") && slices.Contains(w.endings, filepath.Ext(name))
}

// run waits until changes have settled, and then reports them once.
func (w *watcher) run() {
	defer close(w.done)
	var quiet, latest <-chan time.Time // nil if nothing has changed
	for {
		select {
		case e, ok := <-w.events.Events:
			if !ok {
				return
			}
			if !w.counts(e) {
				continue
			}
			if quiet = time.After(settle); latest == nil {
				latest = time.After(settleMost)
			}
			continue
		case err, ok := <-w.events.Errors:
			if !ok {
				return
			}
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.problems(fmt.Errorf("watch: %w", err))
				continue
			} // } // a lost event may have been a change
		case <-quiet:
		case <-latest:
		}
		quiet, latest = nil, nil
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

// counts reports whether an event is a change of a source. It starts to watch a
// new directory, and reports a change for it, because files may have been
// created in it before.
func (w *watcher) counts(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	if about, err := os.Stat(e.Name); err == nil && about.IsDir() && e.Has(fsnotify.Create) {
		name := filepath.Base(e.Name)
		if slices.Contains(skipped, name) || strings.HasPrefix(name, ".") {
			return false
		}
		if err := w.add(e.Name); err != nil {
			w.problems(err)
		}
		return true
	}
	return w.source(e.Name)
}
