package cluster

import (
	"context"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// The interfaces below are what several types of this package need from the
// node they run in. An interface with a single user is declared next to this
// user.

// lifecycle is the life of the node's process.
type lifecycle interface {
	// End reports why the node must be stopped.
	End(error)
	// Stopping reports whether the node is being stopped.
	Stopping() bool
}

// entrance is the node's way into its cluster.
type entrance interface {
	// Entry returns the parameters for joining the cluster. They change with
	// the cluster version.
	Entry() Entry
}

// describer knows this node as a member.
type describer interface {
	// Describe returns this node with its incarnation, its addresses and its
	// roles.
	Describe() meta.Member
}

// prober asks which node listens at an address.
type prober interface {
	Probe(ctx context.Context, address string) (*peerv1.ProbeResponse, error)
}

// stopper stops replicas of this node.
type stopper interface {
	Stop(shard sharding.ShardID, why error)
}
