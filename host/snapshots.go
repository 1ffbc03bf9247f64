package host

import (
	"context"
	"io"

	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
)

// snapshot takes a replica's state that another node sends.
func (r *raftLog) snapshot(context.Context, sharding.NodeID, []byte, io.Reader) error {
	return peer.ErrUnavailable
}
