package request

import (
	"time"

	"github.com/hostd/hostd/sharding"
)

// Route is what a router stores in a Request on its way through the cluster.
// Executors and callers must not use it. It is zero until a router takes the
// request.
type Route struct {
	// Done is the caller's completer, which the router replaces with its own
	// meanwhile.
	Done Completer
	// Number orders the requests of a shard by arrival.
	Number uint64
	// Round counts how often the router has recalled the shard's outstanding
	// requests. If requests of a round were lost on the way to a node, no other
	// request of that round may be sent to that node, because it would overtake
	// them.
	Round uint64
	// Ordered means that the caller may send later requests to the entity
	// before this request is answered. If the router gave up this request
	// while later requests still wait, the caller could not resend this
	// request in its original position. So the request waits for a leader
	// until its deadline.
	Ordered bool
	// Until is when the router gives the request up if it finds no leader by
	// then and the request certainly did not run. It is zero until the request
	// is held for the first time.
	Until time.Time
	// Unknown means that an earlier attempt may have taken effect.
	Unknown bool
	// Epoch is the number of pauses of the process when the request arrived.
	Epoch uint64
	// UnderWay means that an earlier attempt may still take effect later.
	UnderWay bool
	// Self means that the last attempt was sent to this node.
	Self bool
	// Node is the node to which the last attempt was sent.
	Node sharding.NodeID
}
