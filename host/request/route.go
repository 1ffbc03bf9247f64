package request

import (
	"time"

	"github.com/hostd/hostd/sharding"
)

// Route is what a router keeps of a Request on its way through the cluster.
// Lanes and callers leave it alone; a request that no router has taken has the
// zero value.
type Route struct {
	// Done is the caller's completer while the router stands in its place.
	Done Completer
	// Number orders the requests of a shard as they arrived.
	Number uint64
	// Round counts how often what the shard had out has been called back. Once
	// requests of a round are lost on the way to a node, no other of that round
	// may still go there.
	Round uint64
	// Ordered: later requests of the caller to the entity may follow before this
	// one is answered. If it were given up while they wait and run, it could not be
	// sent again in its place, so it waits for a leader until its deadline.
	Ordered bool
	// Until is when the request is given up if no leader is found by then and it
	// certainly did not run. Zero until it is first held.
	Until time.Time
	// Unknown: an earlier attempt may have taken effect.
	Unknown bool
	// Epoch is when the request arrived, in pauses of the process.
	Epoch uint64
	// UnderWay: an earlier attempt may take effect yet.
	UnderWay bool
	// Self: the last attempt went to this node.
	Self bool
	// Node is where the last attempt went.
	Node sharding.NodeID
}
