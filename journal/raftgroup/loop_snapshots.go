package raftgroup

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/hostd/hostd/sharding"
)

// sending is what the loop's goroutine shares with those that send snapshots.
type sending struct {
	queue  chan *Outgoing // closed when no more come
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup
	done   chan struct{} // the senders, and so the loop before them, have ended
}

// startSnapshots starts the goroutines that send.
func (l *Loop) startSnapshots() {
	s := &l.sending
	l.incoming = make(chan struct{}, l.opts.MaxSnapshotsIn)
	s.queue = make(chan *Outgoing, l.opts.MaxSnapshotsOut+l.opts.MaxSnapshotsQueued)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.done = make(chan struct{})
	l.driver.ship = l.ship
	if l.opts.Snapshots != nil && l.opts.Sender != nil {
		for range l.opts.MaxSnapshotsOut {
			s.wait.Go(l.sendSnapshots)
		}
	}
	s.wait.Go(func() { <-l.done })
	go func() {
		s.wait.Wait()
		close(s.done)
	}()
}

// stopSnapshots is called when the loop ends: what is being sent is cut off.
func (l *Loop) stopSnapshots() {
	l.sending.cancel()
	close(l.sending.queue)
}

// ship queues a snapshot; the core hands out no more than fit.
func (l *Loop) ship(o *Outgoing) error {
	if l.opts.Sender == nil {
		return errNoSnapshots
	}
	select {
	case l.sending.queue <- o:
		return nil
	default:
		return ErrBusy
	}
}

func (l *Loop) sendSnapshots() {
	for o := range l.sending.queue {
		err := l.sendSnapshot(o)
		o.Release()
		l.tell(func() { l.core.SnapshotSent(o, err) })
	}
}

// tell runs fn on the loop's goroutine, if that still goes on, and does not
// wait for it. The bounds on snapshots bound it.
func (l *Loop) tell(fn func()) {
	_ = l.inbox.put(func(w *work) error { w.calls = append(w.calls, fn); return nil })
}

func (l *Loop) sendSnapshot(o *Outgoing) error {
	ctx, cancel := context.WithTimeout(l.sending.ctx, l.opts.SnapshotTimeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.opts.Sender.SendSnapshot(ctx, o.Node, o.SnapshotHeader, func() (io.ReadCloser, error) { return o.Stream(), nil })
}

// ReceiveSnapshot takes a snapshot that came from a node: the stream that
// Options.Sender was given there. It returns nil when the snapshot is durable,
// and the state machine goes on from it, or when the replica has all of it
// already, which it may say without reading on; ErrBusy while another one is being received for the replica, and
// ErrUnknownShard and ErrSnapshotIgnored when it is not for it. A stream that
// ends early or is not sound is journal.ErrDamaged. It waits for its turn, and
// then for the stream, whose reads should end soon after ctx does.
func (l *Loop) ReceiveSnapshot(ctx context.Context, from sharding.NodeID, stream io.Reader) error {
	select {
	case l.incoming <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		return ErrStopped
	}
	defer func() { <-l.incoming }()
	h, err := readSnapshotHeader(stream)
	if err != nil {
		return err
	}
	var in *incoming
	if err := l.call(func() (err error) { in, err = l.core.expect(from, h); return err }); err != nil {
		return fmt.Errorf("receive snapshot of shard %d: %w", h.Shard, err)
	}
	if in == nil {
		return nil
	}
	digest, err := l.driver.files.receive(stream, h.file(), h.To)
	if err != nil {
		l.tell(func() { l.core.unexpect(in) })
		return err
	}
	result := make(chan error, 1)
	l.tell(func() { l.core.stepSnapshot(in, digest, func(err error) { result <- err }) })
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		return ErrStopped
	}
}
