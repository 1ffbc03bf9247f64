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

// Dir is the directory. A received snapshot is named by the digest of its
// content, and is used only if a record of the log names it. Methods that do
// I/O may be called from any goroutine. Discard, Sweep and the use counts of
// files belong to one goroutine.
type Dir struct {
	fs     disk.FS
	path   string
	next   atomic.Uint64 // number of the next temporary file
	logger *slog.Logger
	// kept is the size of the expendable files: files being sent, the log entries
	// after them, and parts that wait to be resumed. room returns the limit.
	kept  atomic.Int64
	limit func() int64
	// every is the number of bytes written between two syncs, default
	// syncBytes.
	every int64
	// obsolete files are removed by the next Sweep.
	obsolete []string
}

// ErrNoSpace: the expendable files have reached their limit.
var ErrNoSpace = errors.New("raftgroup: the limit on cached snapshot files is reached")

// New returns the Dir of a path without reading the directory. room returns the
// limit in bytes of the expendable files; nil means a quarter of the free
// space.
func New(fsys disk.FS, path string, room func() int64, logger *slog.Logger) *Dir {
	return &Dir{fs: fsys, path: path, limit: room, logger: logger}
}

const snapshotSuffix = ".snapshot"

// Name returns the file name of a received snapshot.
func Name(shard sharding.ShardID, replica sharding.ReplicaID, digest statefile.Digest) string {
	return fmt.Sprintf("%08x-%016x-%s"+snapshotSuffix, uint32(shard), uint64(replica), digest)
}

// CheckSpace returns ErrNoSpace if size more bytes of expendable files exceed the
// limit.
func (d *Dir) CheckSpace(size int64) error {
	var room int64
	if d.limit != nil {
		room = d.limit()
	} else if free, err := d.fs.FreeBytes(d.path); err != nil {
		return err
	} else {
		room = free / 4
	}
	if kept := d.kept.Load(); kept+size > room {
		return fmt.Errorf("%w: %d bytes are cached for followers, the limit is %d", ErrNoSpace, kept, room)
	}
	return nil
}

// KeptBytes returns the size of the expendable files.
func (d *Dir) KeptBytes() int64 { return d.kept.Load() }

// AddKept adds to the size of the expendable files; bytes may be negative.
func (d *Dir) AddKept(bytes int64) { d.kept.Add(bytes) }

// Create creates an empty file and replaces any file of that name.
func (d *Dir) Create(name string) (disk.File, error) {
	return d.fs.Create(filepath.Join(d.path, name), 0)
}

// Remove removes a file immediately.
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

// Names creates the directory if it is missing and returns its file names.
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

// Clear removes all files except those named.
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

// Discard schedules a file for removal by the next Sweep. It does no I/O. It
// does nothing on a nil Dir.
func (d *Dir) Discard(name string) {
	if d != nil {
		d.obsolete = append(d.obsolete, name)
	}
}

// Sweep removes the discarded files. If that fails, the next start removes
// them.
func (d *Dir) Sweep() {
	for _, name := range d.obsolete {
		if err := d.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.logger.Warn("cannot remove snapshot file", "error", err)
		}
	}
	d.obsolete = d.obsolete[:0]
}
