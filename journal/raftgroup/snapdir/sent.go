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

// syncBytes of a snapshot's file are written between two syncs, so that neither
// the last one nor that of the log has gigabytes to wait for.
const syncBytes = 16 << 20

// ErrNoFile: a snapshot cannot be written to a file of its own; it can still be
// sent as it is read.
var ErrNoFile = errors.New("raftgroup: no file for the snapshot")

// Sent is a shard's state as its leader wrote it to disk, once: it is sent from
// there, to more than one follower, and on from where it broke off. It holds
// back nothing of the store. The file means nothing after a restart.
//
//	NewSent ─▶ Fill, or Abandon ─▶ written, or Failed ─▶ DiscardSent
type Sent struct {
	name string
	head statefile.Header
	uses int           // by those that send it; of the goroutine that owns the Dir
	done chan struct{} // closed when it is written, or will not be
	// Valid then:
	size   int64
	digest statefile.Digest
	err    error
}

// NewSent is a file that is to be filled.
func (d *Dir) NewSent(shard sharding.ShardID, replica uint64, head statefile.Header) *Sent {
	name := fmt.Sprintf("%08x-%016x-%d.sending", uint32(shard), replica, d.next.Add(1))
	return &Sent{name: name, head: head, done: make(chan struct{})}
}

// Header says of what state it is.
func (f *Sent) Header() statefile.Header { return f.head }

// Digest is the state's, valid once the file is written.
func (f *Sent) Digest() statefile.Digest { return f.digest }

// Failed says that there is nothing to be sent.
func (f *Sent) Failed() bool {
	select {
	case <-f.done:
		return f.err != nil
	default:
		return false
	}
}

// Wait waits until the file is written, and returns why it was not.
func (f *Sent) Wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Abandon says that it will not be written.
func (f *Sent) Abandon(err error) {
	f.err = err
	close(f.done)
}

// Use counts one more who sends the file, Leave one less.
func (f *Sent) Use() { f.uses++ }

// Leave counts one less who sends the file.
func (f *Sent) Leave() { f.uses-- }

// Used says whether anybody sends the file.
func (f *Sent) Used() bool { return f.uses > 0 }

// DiscardSent gives the file up.
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

// OpenSent reads a written file from an offset on, or from its start where that
// is not between two chunks; it returns from where. Damage that it meets is told
// too.
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

// noticing tells that a file is damaged.
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

// paced writes to a file's end and syncs now and then.
type paced struct {
	to       disk.File
	at       int64
	unsynced int64
	every    int64        // bytes between two syncs, default syncBytes
	synced   func() error // follows the first sync; nil: nothing does
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
