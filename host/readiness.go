package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// Ready reports whether the node serves: it is caught up, every shard has
// replicas, and those with one here have a leader.
func (n *Node) Ready() bool { return n.readiness() == nil }

var (
	errJoining    = errors.New("the node is waiting to join its cluster")
	errUnfounded  = errors.New("the node is waiting to join its cluster: for a seed that belongs to one, or for 'hostd cluster init' to found it")
	errCatchingUp = errors.New("the node is catching up with the metadata")
	errPlacing    = errors.New("the cluster waits for more nodes before it places its shards")
	errVoting     = errors.New("the metadata shard waits for its voters")
	errElecting   = errors.New("shards are electing their leaders")
	errStopping   = errors.New("the node is stopping")
	errPutDown    = errors.New("an operator put this node down: start it anew to let it join")
	errLeft       = errors.New("the node has left its cluster: stop it")
)

func (n *Node) readiness() error {
	if err := n.opened(); err != nil {
		return err
	}
	if err := n.membership.probation.Proven(); err != nil {
		return err
	}
	stopped := stoppedError(n.replicas.machine.StoppedShards())
	here, placed := n.routing.leaders.Placed()
	switch {
	case n.watches.stalls.Stands():
		return n.watches.stalls.Standing()
	case n.watches.clock.Off():
		return n.watches.clock.Unready()
	case n.membership.member.Left():
		return errLeft
	case n.membership.member.PutDown():
		return errPutDown
	case n.membership.seeds.Strange() != nil:
		return n.membership.seeds.Strange()
	case len(stopped) > 0:
		return stopped
	case n.replicas.judge.Disputes() != nil:
		return n.replicas.judge.Disputes()
	case !n.caughtUp.Load():
		return errCatchingUp
	case !placed:
		return errPlacing
	case !n.region.Led(here):
		return errElecting
	case !n.membership.metadataVoted():
		return errVoting
	}
	return nil
}

// opened says why the node takes no RPC yet.
func (n *Node) opened() error {
	switch {
	case n.lifecycle.stopping.Load():
		return errStopping
	case !n.joined.Load():
		return n.waiting()
	}
	return nil
}

// waiting says what a node waits for that belongs to no cluster yet.
func (n *Node) waiting() error {
	if n.membership.founding != nil && !n.membership.founding.Wants() && n.membership.control.Cluster() == "" {
		return errUnfounded
	}
	return errJoining
}

// stoppedError is the readiness of a node with replicas that have stopped.
type stoppedError map[sharding.ShardID]*eventlog.StoppedError

// maxNamed bounds the shards that a stoppedError names.
const maxNamed = 8

func (e stoppedError) Error() string {
	var named []string
	for i, shard := range slices.Sorted(maps.Keys(e)) {
		if i == maxNamed {
			named = append(named, "...")
			break
		}
		named = append(named, fmt.Sprintf("%d (%v)", shard, eventlog.ReasonOf(e[shard])))
	}
	return fmt.Sprintf("%d of the node's replicas have stopped, see its log; shards %s", len(e), strings.Join(named, ", "))
}
