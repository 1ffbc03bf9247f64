package host

import (
	"context"
	"fmt"
	"io"

	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
)

// snapshotSender carries the state of replicas that have fallen behind.
type snapshotSender struct{ peers *peer.Peers }

// SendSnapshot implements raftgroup.SnapshotSender.
func (s snapshotSender) SendSnapshot(ctx context.Context, to sharding.NodeID, _ raftgroup.SnapshotHeader, open func() (io.ReadCloser, error)) error {
	stream, err := open()
	if err != nil {
		return err
	}
	defer stream.Close()
	return s.peers.SendSnapshot(ctx, to, nil, stream)
}

// snapshot takes a replica's state that another node sends.
func (r *raftLog) snapshot(ctx context.Context, from sharding.NodeID, _ []byte, body io.Reader) error {
	l := r.loop.Load()
	if l == nil {
		return peer.ErrUnavailable
	}
	if err := l.ReceiveSnapshot(ctx, from, body); err != nil {
		return fmt.Errorf("%w: %w", peer.ErrUnavailable, err)
	}
	// A snapshot that was not needed was not read to its end.
	_, err := io.Copy(io.Discard, body)
	return err
}
