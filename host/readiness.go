package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Ready reports whether the node serves. A node that has started becomes
// ready when it has caught up with the metadata, every shard is placed, and
// each shard with a replica here has a leader. Shards that have lost their
// majority need no leader for that. It then stays ready as long as it
// reaches the leader of at least one shard and was not asked to leave.
func (n *Node) Ready() bool { return n.readiness() == nil }

var (
	errJoining         = errors.New("the node is waiting to join its cluster")
	errNotBootstrapped = errors.New("the node is waiting to join its cluster: for a seed that belongs to one, or for 'hostd cluster init' to bootstrap it")
	errCatchingUp      = errors.New("the node is catching up with the metadata")
	errPlacing         = errors.New("the cluster is waiting for more nodes before it places its shards")
	errVoting          = errors.New("the metadata shard is waiting for its voters")
	errElecting        = errors.New("shards are electing their leaders")
	errStopping        = errors.New("the node is stopping")
	errPutDown         = errors.New("an operator declared this node down: restart it to let it join again")
	errLeaving         = errors.New("the node is leaving its cluster")
	errLeft            = errors.New("the node has left its cluster: stop it")
)

func (n *Node) readiness() error {
	if err := n.checkOpen(); err != nil {
		return err
	}
	if err := n.membership.staleDisk.VoteError(); err != nil {
		return err
	}
	stopped := stoppedError(n.replicas.machine.StoppedShards())
	here, placed := n.routing.leaders.Placement()
	switch {
	case n.watches.stalls.IsStalled():
		return n.watches.stalls.StallError()
	case n.watches.clock.IsOff():
		return n.watches.clock.Unready()
	case n.membership.member.HasLeft():
		return errLeft
	case n.membership.member.IsLeaving():
		return errLeaving
	case n.membership.member.IsPutDown():
		return errPutDown
	case n.membership.seeds.Strange() != nil:
		return n.membership.seeds.Strange()
	case len(stopped) > 0:
		return stopped
	case n.replicas.consistency.Disputes() != nil:
		return n.replicas.consistency.Disputes()
	case !n.caughtUp.Load():
		// A node whose clock is behind rejects the nodes that it would catch up
		// from.
		if err := n.peers.FutureStart(); err != nil {
			return fmt.Errorf("%w: %w", errCatchingUp, err)
		}
		return errCatchingUp
	case n.served.Load():
		return n.servesNothing()
	case !placed:
		return errPlacing
	case !n.shardRouter.HasLeaders(slices.DeleteFunc(slices.Clone(here), n.lacksMajority)):
		return errElecting
	case !n.membership.metadataVoted() && !n.lacksMajority(sharding.MetaShard):
		return errVoting
	}
	n.served.Store(true)
	return nil
}

// lacksMajority reports whether the shard can have no leader, because too many
// of its voters have lost their disks or are on suspected nodes. Nodes from
// which this node has not heard since it started do not count as suspected,
// so a starting node waits for them.
func (n *Node) lacksMajority(shard sharding.ShardID) bool {
	if len(n.routing.leaders.Missing(shard).Lost) > 0 {
		return true
	}
	voters, silent := 0, 0
	for _, r := range n.routing.leaders.Replicas(shard) {
		if r.State == meta.ReplicaLearner || r.Lost {
			continue
		}
		if voters++; r.Node != n.id.Node && n.peers.IsSuspected(r.Node) {
			silent++
		}
	}
	return voters > 0 && voters-silent <= voters/2
}

// servesNothing returns an error if a node that was ready reaches the leader of
// no shard, and nil if it reaches one.
func (n *Node) servesNothing() error {
	for shard := sharding.ShardID(1); uint32(shard) <= n.shards; shard++ {
		if _, _, known := n.routing.leaders.Leader(shard); known && n.routing.leaders.Quorum(shard) {
			return nil
		}
	}
	return &sharding.NotLeaderError{Shard: 1, Missing: n.routing.leaders.Missing(1)}
}

// shardsWithoutLeader describes the shards with a replica here whose leader the
// node does not reach, and the suspected nodes that cause it. It returns "" if
// it reaches all leaders.
func (n *Node) shardsWithoutLeader() string {
	here, _ := n.routing.leaders.Placement()
	var named []string
	unheard, lost := map[sharding.NodeID]bool{}, map[sharding.NodeID]bool{}
	for _, shard := range here {
		if _, _, known := n.routing.leaders.Leader(shard); known && n.routing.leaders.Quorum(shard) {
			continue
		}
		missing := n.routing.leaders.Missing(shard)
		for _, node := range missing.Unreachable {
			unheard[node] = true
		}
		for _, node := range missing.Lost {
			lost[node] = true
		}
		named = append(named, fmt.Sprint(shard))
	}
	if len(named) == 0 {
		return ""
	}
	count := len(named)
	if count > maxNamed {
		named = append(named[:maxNamed], "...")
	}
	why := "elections are in progress"
	switch {
	case len(lost) > 0:
		why = fmt.Sprintf("a majority of their voters was lost with the disks of %v, see 'hostd recover --help'", slices.Sorted(maps.Keys(lost)))
	case len(unheard) > 0:
		why = fmt.Sprintf("this node receives no heartbeats from %v", slices.Sorted(maps.Keys(unheard)))
	}
	return fmt.Sprintf("%d shards have no leader that this node can reach: %s; %s", count, strings.Join(named, ", "), why)
}

// checkOpen returns an error that says why the node accepts no calls yet, or nil.
func (n *Node) checkOpen() error {
	switch {
	case n.lifecycle.Stopping():
		return errStopping
	case !n.joined.Load():
		return n.waiting()
	}
	return nil
}

// waiting returns an error that says what a node without a cluster waits for.
func (n *Node) waiting() error {
	if b := n.membership.bootstrap; b != nil && b.Stage().Cluster != "" {
		return fmt.Errorf("%w: %s", errJoining, b.Stage().Waits)
	}
	if n.membership.bootstrap != nil && !n.membership.bootstrap.Wants() && n.membership.control.Cluster() == "" {
		return errNotBootstrapped
	}
	if len(n.cfg.Seeds) > 0 {
		return fmt.Errorf("%w through its seeds %s; the log names the seeds that do not answer", errJoining, strings.Join(n.cfg.Seeds[:min(len(n.cfg.Seeds), maxNamed)], ", "))
	}
	return errJoining
}

// stoppedError is the readiness error of a node with stopped replicas.
type stoppedError map[sharding.ShardID]*eventlog.StoppedError

// maxNamed bounds how many shards, seeds or types a text lists.
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
