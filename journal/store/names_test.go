package store

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/dgraph-io/badger/v4/table"

	"github.com/hostd/hostd/journal/disk"
)

// names is a disk that tracks which table names survive a power cut.
type names struct {
	disk.OS
	synced map[string]bool
	fails  error
}

func (d *names) SyncDir(dir string) error {
	if d.fails != nil {
		return d.fails
	}
	all, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	for _, name := range all {
		d.synced[filepath.Base(name)] = true
	}
	return errors.Join(err, d.OS.SyncDir(dir))
}

// TestWatermarkIsOfNamesThatAreSynced: a version is durable once the names of
// its tables are synced.
func TestWatermarkIsOfNamesThatAreSynced(t *testing.T) {
	d, opts := &names{synced: map[string]bool{}}, small
	opts.Disk = d
	fatal := errors.New("")
	opts.Fatal = func(err error) { fatal = err }
	s := open(t, t.TempDir(), opts)
	told := uint64(0)
	for version := uint64(1); told < 20; version++ {
		put(t, s, version, 1, 20, 1000)
		before := s.db.Tables()
		if told = s.Watermark(); told == 0 {
			continue
		}
		for _, info := range before {
			if name := table.IDToFilename(info.ID); info.Level == 0 && !d.synced[name] {
				t.Fatalf("version %d is told, and a power cut can take the name of %s", told, name)
			}
		}
	}
	// A failed sync is not repeated, and no new version is reported as durable.
	d.fails = syscall.EIO
	defer func() {
		if recover() == nil || !errors.Is(fatal, syscall.EIO) {
			t.Errorf("a failed sync is taken for one: %v", fatal)
		}
		d.fails = nil
	}()
	for version := s.MaxVersion() + 1; ; version++ {
		put(t, s, version, 1, 20, 1000)
		s.Watermark()
	}
}
