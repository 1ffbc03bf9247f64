package raftgroup

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
)

// sending is the state that the loop's goroutine shares with the snapshot
// senders.
type sending struct {
	queue  chan *Outgoing // closed at the end
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup
	done   chan struct{} // closed after the loop and then the senders have ended
}

// startSnapshots starts the snapshot senders.
func (l *Loop) startSnapshots() {
	s := &l.sending
	l.incoming = make(chan struct{}, l.opts.MaxSnapshotsIn)
	s.queue = make(chan *Outgoing, l.opts.MaxSnapshotsOut+l.opts.MaxSnapshotsQueued)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.done = make(chan struct{})
	l.driver.sender = l
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

// stopSnapshots cancels the snapshots being sent. It is called when the loop
// ends.
func (l *Loop) stopSnapshots() {
	l.sending.cancel()
	close(l.sending.queue)
}

// ship queues a snapshot. The core never hands out more than the queue holds.
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
		l.enqueue(func() { l.core.reportSnapshot(o, err) })
	}
}

// enqueue runs fn on the loop's goroutine if it is still running, without waiting.
// The limits on snapshots bound how many such calls are queued.
func (l *Loop) enqueue(fn func()) {
	_ = l.inbox.Put(func(w *inboxWork) error { w.Calls = append(w.Calls, fn); return nil })
}

func (l *Loop) sendSnapshot(o *Outgoing) error {
	ctx := l.sending.ctx
	if err := ctx.Err(); err != nil {
		return err
	}
	begin := func(direct bool) error {
		return l.call(func() error { return l.core.transfers.begin(l.core.groups[o.Shard], o, direct) })
	}
	if err := o.Prepare(ctx, l.opts.Logger, begin); err != nil {
		return err
	}
	if head, question := o.Question(); question != nil {
		if err := o.Resume(l.opts.Sender.SendSnapshot(ctx, o.Node, head, question)); err != nil {
			return err
		}
	}
	head, stream, err := o.Stream()
	if err != nil {
		return err
	}
	defer stream.Close()
	_, err = l.opts.Sender.SendSnapshot(ctx, o.Node, head, stream)
	return err
}

// ReceiveSnapshot receives a snapshot from a node: the head and the stream that
// Options.Sender was given there. The answer, of a few bytes, goes back to that
// sender. ReceiveSnapshot returns nil when the snapshot is durable and the
// state machine continues from it, or if the replica already has all of the
// snapshot, in which case it may return without reading the stream. It returns
// ErrBusy while another snapshot is being received for the replica, and
// ErrUnknownShard or ErrSnapshotIgnored if the snapshot is not for a replica
// here. A truncated or corrupt stream is journal.ErrDamaged. ReceiveSnapshot
// waits for a free slot and then for the stream, whose reads should end soon
// after ctx does.
func (l *Loop) ReceiveSnapshot(ctx context.Context, from sharding.NodeID, head []byte, stream io.Reader) (answer []byte, err error) {
	select {
	case l.incoming <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.done:
		return nil, ErrStopped
	}
	defer func() { <-l.incoming }()
	at, h, err := wire.ReadTransfer(head, stream)
	if err != nil {
		return nil, err
	}
	var in *incomingSnapshot
	err = l.call(func() (err error) { in, err = l.core.admitSnapshot(from, h, at); return err })
	if err != nil {
		err = fmt.Errorf("receive snapshot of shard %d: %w", h.Shard, err)
	}
	if at.IsQuestion {
		answer, err = l.driver.answer(in, err)
		if in != nil {
			l.enqueue(func() { l.core.transfers.releaseIncoming(l.core.groups[in.Shard], in) })
		}
		return answer, err
	}
	if err != nil || in == nil {
		return nil, err
	}
	return nil, l.receive(ctx, in, stream)
}

// receive reads the bytes of an admitted snapshot.
func (l *Loop) receive(ctx context.Context, in *incomingSnapshot, stream io.Reader) error {
	digest, err := in.Receive(l.driver.files, stream)
	if err != nil {
		l.enqueue(func() { l.core.transfers.releaseIncoming(l.core.groups[in.Shard], in) })
		return err
	}
	result := make(chan error, 1)
	l.enqueue(func() { l.core.stepSnapshot(in, digest, func(err error) { result <- err }) })
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		return ErrStopped
	}
}
