package snapdir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// Dir is the directory. A received snapshot has its content's digest for a
// name, and counts only if a record of the log names it. What does I/O may be
// called from any goroutine; Discard, Sweep and the uses of files belong to one.
type Dir struct {
	fs     disk.FS
	path   string
	next   atomic.Uint64 // number of the next file under way
	logger *slog.Logger
	// kept is how many bytes of files can be done without: what is sent, the log
	// behind it, and parts of which nothing comes. room is how many may be.
	kept atomic.Int64
	room func() int64
	// every is how many bytes are written between two syncs, default syncBytes.
	every int64
	// obsolete files are to be removed.
	obsolete []string
}

// ErrNoRoom: what can be done without takes all the room it may have.
var ErrNoRoom = errors.New("raftgroup: no room for files that can be done without")

// New is the directory of that path, which is not looked at yet. room says how
// many bytes may be kept that can be done without; nil: a quarter of what is
// free.
func New(fsys disk.FS, path string, room func() int64, logger *slog.Logger) *Dir {
	return &Dir{fs: fsys, path: path, room: room, logger: logger}
}

const snapshotSuffix = ".snapshot"

// Name is that of a received snapshot's file.
func Name(shard sharding.ShardID, replica sharding.ReplicaID, digest statefile.Digest) string {
	return fmt.Sprintf("%08x-%016x-%s"+snapshotSuffix, uint32(shard), uint64(replica), digest)
}

// Fits says whether there is room for more bytes to be kept.
func (d *Dir) Fits(size int64) error {
	var room int64
	if d.room != nil {
		room = d.room()
	} else if free, err := d.fs.FreeBytes(d.path); err != nil {
		return err
	} else {
		room = free / 4
	}
	if kept := d.kept.Load(); kept+size > room {
		return fmt.Errorf("%w: %d bytes are held for followers, %d are allowed", ErrNoRoom, kept, room)
	}
	return nil
}

// Kept is how many bytes there are that can be done without.
func (d *Dir) Kept() int64 { return d.kept.Load() }

// Count adds to the bytes that can be done without, or takes from them.
func (d *Dir) Count(bytes int64) { d.kept.Add(bytes) }

// Create makes an empty file, in the place of any of the name.
func (d *Dir) Create(name string) (disk.File, error) {
	return d.fs.Create(filepath.Join(d.path, name), 0)
}

// Remove removes a file now.
func (d *Dir) Remove(name string) error { return d.fs.Remove(filepath.Join(d.path, name)) }

// Open opens a received snapshot for reading from its start.
func (d *Dir) Open(name string) (io.ReadCloser, error) {
	f, err := d.fs.OpenFile(filepath.Join(d.path, name), disk.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the log names a snapshot whose file is missing", journal.ErrDamaged)
	}
	if err != nil {
		return nil, fmt.Errorf("open snapshot: %w", err)
	}
	size, err := f.Size()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open snapshot: %w", err)
	}
	return &openFile{io.NewSectionReader(f, 0, size), f}, nil
}

type openFile struct {
	io.Reader
	io.Closer
}

// Names makes the directory if it is not there and returns what is in it.
func (d *Dir) Names() ([]string, error) {
	if err := d.fs.MkdirAll(d.path); err != nil {
		return nil, fmt.Errorf("snapshot directory: %w", err)
	}
	names, err := d.fs.List(d.path)
	if err != nil {
		return nil, fmt.Errorf("snapshot directory: %w", err)
	}
	return names, nil
}

// Clear removes all files but those named.
func (d *Dir) Clear(named []string) error {
	names, err := d.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.Contains(named, name) {
			continue
		}
		if err := d.Remove(name); err != nil {
			return fmt.Errorf("snapshot directory: %w", err)
		}
	}
	return nil
}

// Discard has a file removed by the next Sweep. It does no I/O. Without a
// directory, which is nil, what lies there is another one's to clear.
func (d *Dir) Discard(name string) {
	if d != nil {
		d.obsolete = append(d.obsolete, name)
	}
}

// Sweep removes the files that were discarded. One that cannot be removed is
// found by the next start.
func (d *Dir) Sweep() {
	for _, name := range d.obsolete {
		if err := d.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.logger.Warn("snapshot file not removed", "error", err)
		}
	}
	d.obsolete = d.obsolete[:0]
}
