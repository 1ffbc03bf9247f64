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

// syncBytes is the number of bytes of a snapshot file written between two
// syncs, so that neither the last sync nor one of the log has to wait for
// gigabytes.
const syncBytes = 16 << 20

// ErrNoFile: a snapshot cannot be written to a file. It can still be streamed
// from the store.
var ErrNoFile = errors.New("raftgroup: no file for the snapshot")

// Sent is a shard's state that its leader wrote to disk once. From there it is
// sent to any number of followers and resumed after an interruption, without
// pinning anything in the store. The file is useless after a restart.
//
//	NewSent ─▶ Fill, or Abandon ─▶ written, or Failed ─▶ DiscardSent
type Sent struct {
	name string
	head statefile.Header
	uses int           // transfers that use it; belongs to the goroutine that owns the Dir
	done chan struct{} // closed when the file is written or has failed
	// Valid once done is closed:
	size   int64
	digest statefile.Digest
	err    error
}

// NewSent returns a file that is to be filled.
func (d *Dir) NewSent(shard sharding.ShardID, replica uint64, head statefile.Header) *Sent {
	name := fmt.Sprintf("%08x-%016x-%d.sending", uint32(shard), replica, d.next.Add(1))
	return &Sent{name: name, head: head, done: make(chan struct{})}
}

// Header describes the state in the file.
func (f *Sent) Header() statefile.Header { return f.head }

// Digest returns the digest of the state, valid once the file is written.
func (f *Sent) Digest() statefile.Digest { return f.digest }

// Failed reports whether writing the file failed.
func (f *Sent) Failed() bool {
	select {
	case <-f.done:
		return f.err != nil
	default:
		return false
	}
}

// Wait waits until the file is written, and returns the error if that failed.
func (f *Sent) Wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Abandon marks the file as failed.
func (f *Sent) Abandon(err error) {
	f.err = err
	close(f.done)
}

// Use adds a transfer that uses the file, and Leave removes one.
func (f *Sent) Use() { f.uses++ }

// Leave removes a transfer that uses the file.
func (f *Sent) Leave() { f.uses-- }

// Used reports whether a transfer uses the file.
func (f *Sent) Used() bool { return f.uses > 0 }

// DiscardSent discards the file.
func (d *Dir) DiscardSent(f *Sent) {
	d.Count(-f.size)
	d.Discard(f.name)
}

// Fill writes the state to the file and closes it.
func (d *Dir) Fill(ctx context.Context, f *Sent, state statefile.Pinned) {
	f.err = d.fill(ctx, f, state)
	close(f.done)
}

func (d *Dir) fill(ctx context.Context, f *Sent, state statefile.Pinned) (err error) {
	stream := state.Stream()
	defer func() { err = errors.Join(err, stream.Close()) }()
	file, err := d.Create(f.name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoFile, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	to := &paced{to: file, every: d.every}
	buf := make([]byte, statefile.ChunkBytes)
	var tail []byte
	for ctx.Err() == nil {
		n, err := io.ReadFull(stream, buf)
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return err
		}
		if err := d.Fits(int64(n)); err != nil {
			return fmt.Errorf("%w: %w", ErrNoFile, err)
		}
		d.Count(int64(n))
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

// OpenSent opens a written file at an offset, or at its start if the offset is
// not a chunk boundary, and returns the actual offset. It calls damaged if it
// reads damaged data.
func (d *Dir) OpenSent(f *Sent, offset int64, damaged func(error)) (io.ReadCloser, int64, error) {
	file, err := d.fs.OpenFile(filepath.Join(d.path, f.name), disk.ReadOnly)
	if err != nil {
		return nil, offset, err
	}
	rest, err := statefile.Rest(file, f.size, offset)
	if errors.Is(err, statefile.ErrNoBoundary) {
		offset = 0
		rest, err = statefile.Rest(file, f.size, 0)
	}
	if err != nil {
		file.Close()
		return nil, offset, err
	}
	return &openFile{&noticing{rest, f.name, damaged}, file}, offset, nil
}

// noticing is a reader that reports damage of a file.
type noticing struct {
	from    io.Reader
	name    string
	damaged func(error)
}

func (n *noticing) Read(p []byte) (int, error) {
	got, err := n.from.Read(p)
	if errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrUnsupported) {
		err = fmt.Errorf("file %s: %w", n.name, err)
		n.damaged(err)
	}
	return got, err
}

// paced writes to the end of a file and syncs every so many bytes.
type paced struct {
	to       disk.File
	at       int64
	unsynced int64
	every    int64        // bytes between two syncs, default syncBytes
	synced   func() error // called after the first sync; may be nil
	err      error
}

func (w *paced) Write(p []byte) (n int, err error) {
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
