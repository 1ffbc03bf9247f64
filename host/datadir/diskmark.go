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

// diskPeriod is the period of the free-space checks. At 1 GB/s the write paths
// fill 100 MB between two checks, well within the read-only limit.
const diskPeriod = 100 * time.Millisecond

// startBytes is more than the journal writes while it is opened, before the
// limit can stop it: an opening journal replays the log records that are not in
// the store's tables.
const startBytes = 128 << 20

// DiskMark decides when writes are rejected because the data directory's file
// system is nearly full. The store writes through memory maps, so a full
// disk would kill the process, and would kill it again each time that it is
// restarted. It is safe for concurrent use after Open.
type DiskMark struct {
	dir      string
	cfg      *config.Config
	logger   *slog.Logger
	readOnly atomic.Bool
	free     atomic.Uint64
	total    atomic.Uint64
	warned   bool
	failed   string // error of the last check
}

// Open does the first check. It fails if the disk has no room to start, because
// the process would later be killed by a signal without an explanation.
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

// ReadOnly reports whether writes must be rejected, as of the last check.
func (d *DiskMark) ReadOnly() bool { return d.readOnly.Load() }

// Free returns the free bytes of the file system, as of the last check.
func (d *DiskMark) Free() uint64 { return d.free.Load() }

// mark returns the free space below which writes are rejected, in bytes.
func (d *DiskMark) mark() uint64 {
	part := min(d.total.Load()/100*uint64(d.cfg.DiskReadOnlyPercent), uint64(d.cfg.DiskReadOnlyMax))
	return max(part, uint64(d.cfg.DiskReadOnlyBytes))
}

// Spare returns a quarter of the free bytes above the limit, as of the last
// check. Data that can be dispensed with, such as caches, may use that much.
func (d *DiskMark) Spare() int64 {
	free, mark := d.free.Load(), d.mark()
	return int64((max(free, mark) - mark) / 4)
}

// look checks the free space again.
func (d *DiskMark) look() error {
	free, total, err := disk.Space(d.dir)
	if err != nil {
		return err
	}
	d.free.Store(free)
	d.total.Store(total)
	mark := d.mark()
	full := free < mark
	// Writes resume a tenth above the limit, so that the state does not flap.
	if d.readOnly.Load() && free < mark+mark/10 {
		full = true
	}
	if was := d.readOnly.Swap(full); was != full {
		if full {
			d.logger.Error("the disk is nearly full; rejecting writes", "free_bytes", free, "mark_bytes", mark)
		} else {
			d.logger.Info("the disk has enough free space; accepting writes again", "free_bytes", free)
		}
	}
	low := free < total/100*uint64(d.cfg.DiskWarnPercent)
	if low && !d.warned {
		d.logger.Warn("the disk is filling up", "free_bytes", free, "read_only_below_bytes", mark)
	}
	d.warned = low
	return nil
}

// errGone means that the data directory of a running node was removed, moved,
// replaced or unmounted. Nobody would find what the node writes afterwards.
var errGone = errors.New("the data directory was removed, moved or replaced while the node was running")

// Watch checks until ctx ends. If the directory is gone, it returns errGone.
// The journal notices that itself before it acknowledges a write, but an idle
// node learns of it only here.
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

// noteFailure logs why the free space cannot be read, once per error.
func (d *DiskMark) noteFailure(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != d.failed && err != nil {
		d.logger.Error("cannot read the free space of the disk", "error", err)
	}
	d.failed = text
}

// identities are the files and directories that a running node uses, by their
// paths.
type identities map[string]os.FileInfo

func identify(dir string) (identities, error) {
	found := identities{}
	for _, name := range []string{".", LockFile, WALDir, StoreDir} {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil {
			if err := goneError(path, err); err != nil {
				return nil, err
			}
			continue
		}
		found[path] = info
	}
	return found, nil
}

// check compares the files that have the paths now with the recorded ones. An
// error other than "does not exist" is ignored, because it proves nothing.
func (f identities) check() error {
	for path, kept := range f {
		switch info, err := os.Stat(path); {
		case err != nil:
			if err := goneError(path, err); err != nil {
				return err
			}
		case !os.SameFile(info, kept):
			return fmt.Errorf("%w: %s was replaced", errGone, path)
		}
	}
	return nil
}

// goneError returns errGone if err means that the path does not exist.
func goneError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is missing", errGone, path)
	}
	return nil
}
