package certs

import (
	"errors"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// dirWatch is a Watch of fsnotify. It watches directories, not files: a file is
// replaced by a rename, and what a volume mounts is a link to a directory that
// is.
type dirWatch struct {
	dirs    []string
	watcher *fsnotify.Watcher
	changes chan struct{}
	reading sync.WaitGroup
}

func watchDirs(dirs []string) (Watch, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	d := &dirWatch{dirs: dirs, watcher: w, changes: make(chan struct{}, 1)}
	for _, dir := range dirs {
		if err := w.Add(dir); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	d.reading.Go(d.read)
	return d, nil
}

// read takes every event for a change, also that some were lost.
func (d *dirWatch) read() {
	for {
		select {
		case _, open := <-d.watcher.Events:
			if !open {
				return
			}
		case _, open := <-d.watcher.Errors:
			if !open {
				return
			}
		}
		select {
		case d.changes <- struct{}{}:
		default:
		}
	}
}

// Changes implements Watch.
func (d *dirWatch) Changes() <-chan struct{} { return d.changes }

// Renew implements Watch. A directory that is not there is tried again the next
// time.
func (d *dirWatch) Renew() {
	for _, dir := range d.dirs {
		_ = d.watcher.Add(dir)
	}
}

// Close implements Watch.
func (d *dirWatch) Close() error {
	err := d.watcher.Close()
	d.reading.Wait()
	return err
}

// unwatched is a Watch that tells of nothing.
type unwatched struct{}

func (unwatched) Changes() <-chan struct{} { return nil }
func (unwatched) Renew()                   {}
func (unwatched) Close() error             { return nil }
