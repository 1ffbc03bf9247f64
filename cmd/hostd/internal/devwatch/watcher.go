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
	// settle is how long nothing may change before a project is built, and
	// settleMost how long that is waited for.
	settle     = 150 * time.Millisecond
	settleMost = 2 * time.Second
	// maxDirectories bounds what is watched of a project.
	maxDirectories = 1000
)

// skipped are directories that no source of a project lies in.
var skipped = []string{"node_modules", "target", "build", "dist", "hostd-dev", "hostd-sdk"}

// watcher tells when sources of a project have changed. Its goroutine ends with
// close.
type watcher struct {
	events   *fsnotify.Watcher
	endings  []string
	watched  int
	changed  chan struct{} // holds one: what changed again meanwhile is one change
	done     chan struct{}
	problems func(error)
}

// newWatcher watches a directory and those below it. endings are those of the
// names of sources; problems is told what goes wrong later, on the watcher's
// goroutine.
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

// add watches a directory and those below it. One that is gone meanwhile is no
// failure.
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
			return cli.Hint(fmt.Errorf("%s has more than %d directories", root, maxDirectories), "Name the directory of the project alone.")
		}
		if err := w.events.Add(path); err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
		return nil
	})
}

// source reports that a file is one that a project is built from.
func (w *watcher) source(path string) bool {
	name := filepath.Base(path)
	return !strings.HasPrefix(name, ".") && slices.Contains(w.endings, filepath.Ext(name))
}

// run waits for changes to settle, and tells of them once.
func (w *watcher) run() {
	defer close(w.done)
	var quiet, latest <-chan time.Time // nil: nothing has changed
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
			} // what was lost may have been a change
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

// counts reports that an event is a change of a source. A new directory is
// watched from then on; what came into it before counts as a change.
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
