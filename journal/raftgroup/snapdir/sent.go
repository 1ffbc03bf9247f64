package snapdir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// syncBytes is the number of bytes of a snapshot file that are written between
// two syncs, so that neither the last sync nor a sync of the log has to wait
// for gigabytes.
const syncBytes = 16 << 20

// ErrNoFile: a snapshot cannot be written to a file. It can still be streamed
// from the store.
var ErrNoFile = errors.New("raftgroup: the snapshot has no file")

// SendFile is a file to which a leader wrote a shard's state once. It can be
// sent to any number of followers, and resumed after an interruption, without
// pinning anything in the store. The file is useless after a restart.
//
//	NewSendFile ─▶ Fill, or Abandon ─▶ written, or Failed ─▶ DiscardSendFile
type SendFile struct {
	name string
	head statefile.Header
	uses int           // number of transfers that use it; belongs to the goroutine that owns the Dir
	done chan struct{} // closed when the file is written or has failed
	// These fields are valid once done is closed.
	size   int64
	digest statefile.Digest
	err    error
}

// NewSendFile returns a file that is to be filled.
func (d *Dir) NewSendFile(shard sharding.ShardID, replica uint64, head statefile.Header) *SendFile {
	name := fmt.Sprintf("%08x-%016x-%d.sending", uint32(shard), replica, d.next.Add(1))
	return &SendFile{name: name, head: head, done: make(chan struct{})}
}

// Header describes the state in the file.
func (f *SendFile) Header() statefile.Header { return f.head }

// Digest returns the digest of the state, valid once the file is written.
func (f *SendFile) Digest() statefile.Digest { return f.digest }

// HasFailed reports whether writing the file failed.
func (f *SendFile) HasFailed() bool {
	select {
	case <-f.done:
		return f.err != nil
	default:
		return false
	}
}

// Wait waits until the file is written, and returns the error if writing
// failed.
func (f *SendFile) Wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Abandon marks the file as failed.
func (f *SendFile) Abandon(err error) {
	f.err = err
	close(f.done)
}

// Acquire adds a transfer that uses the file.
func (f *SendFile) Acquire() { f.uses++ }

// Release removes a transfer that uses the file.
func (f *SendFile) Release() { f.uses-- }

// IsUsed reports whether a transfer uses the file.
func (f *SendFile) IsUsed() bool { return f.uses > 0 }

// DiscardSendFile discards the file.
func (d *Dir) DiscardSendFile(f *SendFile) {
	d.AddKept(-f.size)
	d.Discard(f.name)
}

// Fill writes the state to the file and closes it.
func (d *Dir) Fill(ctx context.Context, f *SendFile, state statefile.Pinned) {
	f.err = d.fill(ctx, f, state)
	close(f.done)
}

func (d *Dir) fill(ctx context.Context, f *SendFile, state statefile.Pinned) (err error) {
	stream := state.Stream()
	defer func() { err = errors.Join(err, stream.Close()) }()
	file, err := d.Create(f.name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoFile, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	to := &syncWriter{to: file, every: d.every}
	buf := make([]byte, statefile.ChunkBytes)
	var tail []byte
	for ctx.Err() == nil {
		n, err := io.ReadFull(stream, buf)
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return err
		}
		if err := d.CheckSpace(int64(n)); err != nil {
			return fmt.Errorf("%w: %w", ErrNoFile, err)
		}
		d.AddKept(int64(n))
		f.size += int64(n)
		if _, err := to.Write(buf[:n]); err != nil {
			return fmt.Errorf("%w: %w", ErrNoFile, err)
		}
		tail = append(tail, buf[max(0, n-len(f.digest)):n]...)
		tail = tail[max(0, len(tail)-len(f.digest)):]
		if ended {
			copy(f.digest[:], tail) // a stream ends with its digest
			return nil
		}
	}
	return ctx.Err()
}

// OpenSendFile opens a written file at an offset, or at its start if the offset is
// not a chunk boundary, and returns the actual offset. It calls damaged if it
// reads damaged data.
func (d *Dir) OpenSendFile(f *SendFile, offset int64, damaged func(error)) (io.ReadCloser, int64, error) {
	file, err := d.fs.OpenFile(filepath.Join(d.path, f.name), disk.ReadOnly)
	if err != nil {
		return nil, offset, err
	}
	rest, err := statefile.NewReaderFrom(file, f.size, offset)
	if errors.Is(err, statefile.ErrNoBoundary) {
		offset = 0
		rest, err = statefile.NewReaderFrom(file, f.size, 0)
	}
	if err != nil {
		file.Close()
		return nil, offset, err
	}
	return &openFile{&damageReader{rest, f.name, damaged}, file}, offset, nil
}

// damageReader is a reader that reports damage of a file.
type damageReader struct {
	from    io.Reader
	name    string
	damaged func(error)
}

func (n *damageReader) Read(p []byte) (int, error) {
	got, err := n.from.Read(p)
	if errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrUnsupported) {
		err = fmt.Errorf("file %s: %w", n.name, err)
		n.damaged(err)
	}
	return got, err
}

// syncWriter writes to the end of a file and syncs at regular intervals of
// bytes.
type syncWriter struct {
	to       disk.File
	at       int64
	unsynced int64
	every    int64        // number of bytes between two syncs, default syncBytes
	synced   func() error // called after the first sync; may be nil
	err      error
}

func (w *syncWriter) Write(p []byte) (n int, err error) {
	n, err = w.to.WriteAt(p, w.at)
	w.at += int64(n)
	w.unsynced += int64(n)
	every := w.every
	if every == 0 {
		every = syncBytes
	}
	if err == nil && w.unsynced >= every {
		err = w.to.Sync()
		w.unsynced = 0
		if first := w.synced; err == nil && first != nil {
			w.synced = nil
			err = first()
		}
	}
	w.err = errors.Join(w.err, err)
	return n, err
}
