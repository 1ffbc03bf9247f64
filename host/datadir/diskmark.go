package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/journal/disk"
)

// diskPeriod is how often free space is looked at: at 1 GB/s the write paths
// take 100 MB between two looks, well within the read-only mark.
const diskPeriod = 100 * time.Millisecond

// startBytes is more than opening the journal writes before the mark can stop
// it: what the log holds beyond the store's tables is stored again.
const startBytes = 128 << 20

// DiskMark says to refuse writes while the data directory's file system is
// nearly full: the store writes through memory maps, and a full disk would end
// the process at each start. Use it from Open on, by any goroutine.
type DiskMark struct {
	dir      string
	cfg      *config.Config
	logger   *slog.Logger
	readOnly atomic.Bool
	free     atomic.Uint64
	total    atomic.Uint64
	warned   bool
	failed   string // what the last look failed with
}

// Open takes the first look. It refuses a disk without room to start on: the
// process would be killed by a signal, with no word of why.
func (d *DiskMark) Open(dir string, cfg *config.Config, logger *slog.Logger) error {
	d.dir, d.cfg, d.logger = dir, cfg, logger
	if err := d.look(); err != nil {
		return err
	}
	if free, need := d.free.Load(), min(startBytes, d.mark()); free < need {
		return fmt.Errorf("the disk is full: %d MiB are free, %d MiB are needed to open the journal; free some space and start again", free>>20, need>>20)
	}
	return nil
}

// ReadOnly says to refuse writes, as of the last look.
func (d *DiskMark) ReadOnly() bool { return d.readOnly.Load() }

// Free is what the file system has left, in bytes, as of the last look.
func (d *DiskMark) Free() uint64 { return d.free.Load() }

// mark is the free space below which writes are refused, as of the last look.
func (d *DiskMark) mark() uint64 {
	part := min(d.total.Load()/100*uint64(d.cfg.DiskReadOnlyPercent), uint64(d.cfg.DiskReadOnlyMax))
	return max(part, uint64(d.cfg.DiskReadOnlyBytes))
}

// Spare is a quarter of what is free above the mark, in bytes, as of the last
// look: what may be kept that can be done without.
func (d *DiskMark) Spare() int64 {
	free, mark := d.free.Load(), d.mark()
	return int64((max(free, mark) - mark) / 4)
}

// look takes the free space anew.
func (d *DiskMark) look() error {
	free, total, err := disk.Space(d.dir)
	if err != nil {
		return err
	}
	d.free.Store(free)
	d.total.Store(total)
	mark := d.mark()
	full := free < mark
	// Writes return a tenth above the mark, so that the mark does not flap.
	if d.readOnly.Load() && free < mark+mark/10 {
		full = true
	}
	if was := d.readOnly.Swap(full); was != full {
		if full {
			d.logger.Error("the disk is nearly full: writes are refused, reads go on", "free_bytes", free, "mark_bytes", mark)
		} else {
			d.logger.Info("space has returned: writes are taken again", "free_bytes", free)
		}
	}
	low := free < total/100*uint64(d.cfg.DiskWarnPercent)
	if low && !d.warned {
		d.logger.Warn("the disk is filling up", "free_bytes", free, "read_only_below_bytes", mark)
	}
	d.warned = low
	return nil
}

// ErrGone says that the data directory of a running node was removed, moved,
// replaced or unmounted. What the node writes from then on, nobody would find.
var ErrGone = errors.New("the data directory was removed, moved or replaced while the node ran")

// Watch looks until ctx ends, or until the directory is gone, which it returns
// as ErrGone. The journal notices that by itself before it acknowledges a write;
// a node that writes nothing learns of it here.
func (d *DiskMark) Watch(ctx context.Context) error {
	kept, err := identify(d.dir)
	if err != nil {
		return err
	}
	every := time.NewTicker(diskPeriod)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			if err := kept.check(); err != nil {
				return err
			}
			d.noteFailure(d.look())
		case <-ctx.Done():
			return nil
		}
	}
}

// noteFailure logs why the free space cannot be read, once until that changes.
func (d *DiskMark) noteFailure(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != d.failed && err != nil {
		d.logger.Error("the disk's free space cannot be read", "error", err)
	}
	d.failed = text
}

// identities are the files and directories that a node has in use from its
// start to its end, by their paths.
type identities map[string]os.FileInfo

func identify(dir string) (identities, error) {
	found := identities{}
	for _, name := range []string{".", LockFile, WALDir, StoreDir} {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil {
			if err := gone(path, err); err != nil {
				return nil, err
			}
			continue
		}
		found[path] = info
	}
	return found, nil
}

// check compares what has the paths now. A path that cannot be looked at for
// another reason than that nothing is there says nothing.
func (f identities) check() error {
	for path, kept := range f {
		switch info, err := os.Stat(path); {
		case err != nil:
			if err := gone(path, err); err != nil {
				return err
			}
		case !os.SameFile(info, kept):
			return fmt.Errorf("%w: %s is another one", ErrGone, path)
		}
	}
	return nil
}

// gone is ErrGone if err says that nothing has the path.
func gone(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is not there", ErrGone, path)
	}
	return nil
}
