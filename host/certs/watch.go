package certs

import (
	"errors"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// dirWatch implements Watch with fsnotify. It watches directories instead of
// files, because files are replaced by renames, and a mounted volume contains a
// symbolic link to a directory that is replaced.
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

// read reports every event as a change, including the error that events were
// lost.
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

// Renew implements Watch. If a directory does not exist, the next call tries
// again.
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

// unwatched is a Watch that reports no changes.
type unwatched struct{}

func (unwatched) Changes() <-chan struct{} { return nil }
func (unwatched) Renew()                   {}
func (unwatched) Close() error             { return nil }
