package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// OperationKind is the kind of an operator's request.
type OperationKind int

// The operations. Drain, Resume, Leave, Down and Renew are written to the
// metadata and continue under any coordinator. The other operations end with
// the coordinator that accepted them.
const (
	// OperationMove: Node should lead Shard. If the node has no voter of the
	// shard, a voter is moved there first. Balancing does not undo the move
	// while Node leads.
	OperationMove OperationKind = iota + 1
	// OperationDrain: Node should lead nothing until it restarts or is resumed. It
	// is done when all leaderships for which another voter exists have been
	// transferred. Remaining then counts the leaderships that could not be
	// transferred.
	OperationDrain
	// OperationResume cancels OperationDrain, and OperationLeave if the node is
	// still a member.
	OperationResume
	// OperationLeave: Node should leave the cluster. It is done when the node
	// is no longer a member.
	OperationLeave
	// OperationDown: Node should be considered dead immediately.
	OperationDown
	// OperationRebalance: replicas and leaderships should be balanced, even if
	// the policy disables rebalancing.
	OperationRebalance
	// OperationRenew: Node's data is damaged and should be discarded and copied
	// from other nodes again. It is rejected if that could lose data. Otherwise
	// the node is considered dead, as with OperationDown, and may set its data
	// aside.
	OperationRenew
)

// MaxOperations limits the unfinished operations. Each step visits all of them.
const MaxOperations = 1024

// Operation is an operator's request. The caller assigns ids, which must not be
// reused.
type Operation struct {
	ID    uint64
	Kind  OperationKind
	Shard sharding.ShardID
	Node  sharding.NodeID
}

// String returns a description for logs.
func (o Operation) String() string {
	switch o.Kind {
	case OperationMove:
		return fmt.Sprintf("move shard %d to node %s", o.Shard, o.Node)
	case OperationDrain:
		return fmt.Sprintf("drain node %s", o.Node)
	case OperationResume:
		return fmt.Sprintf("resume node %s", o.Node)
	case OperationLeave:
		return fmt.Sprintf("remove node %s", o.Node)
	case OperationDown:
		return fmt.Sprintf("declare node %s down", o.Node)
	case OperationRebalance:
		return "rebalance"
	case OperationRenew:
		return fmt.Sprintf("rebuild the data of node %s", o.Node)
	}
	return fmt.Sprintf("operation of kind %d", o.Kind)
}

// Progress is the progress of an operation.
type Progress struct {
	ID   uint64
	Done bool
	// Durable means that nothing more will be written for the operation: if
	// operations of its kind are kept in the metadata, it has been written there,
	// and it no longer depends on this coordinator.
	Durable bool
	// Err says why a Done operation was not carried out. It wraps ErrRefused or
	// ErrTimeout.
	Err error
	// Remaining counts the remaining leadership transfers, or replicas to move
	// or build.
	Remaining int
}

// Errors of operations.
var (
	// ErrRefused: the operation is not possible in the current state of the
	// cluster.
	ErrRefused = errors.New("coordinator: operation refused")
	// ErrTimeout: the operation made no progress for too long. Steps that it
	// started are still completed or undone.
	ErrTimeout = errors.New("coordinator: operation timed out")
)

// operation is an accepted operation.
type operation struct {
	Operation
	since   time.Time // time of its last progress
	left    int       // Progress.Remaining at that time
	durable bool      // Progress.Durable was reported
	// idleSteps counts the consecutive steps in which a rebalance had nothing
	// to do.
	idleSteps int
	done      *Progress
}

func (o *operation) reject(format string, args ...any) {
	o.done = &Progress{ID: o.ID, Done: true, Err: fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))}
}

// takeOperations accepts new operations. A new operation to move a shard
// replaces an earlier one for the same shard.
func (s *stepView) takeOperations(operations []Operation) {
	for _, o := range s.operations {
		s.writeOperation(o)
	}
	for _, o := range operations {
		for _, other := range s.operations {
			if o.Kind == OperationMove && other.Kind == OperationMove && other.Shard == o.Shard && other.done == nil {
				other.reject("replaced by an operation that moves shard %d to node %s", o.Shard, o.Node)
			}
		}
		taken := &operation{Operation: o, since: s.now}
		s.operations = append(s.operations, taken)
		s.beginOperation(taken)
		s.writeOperation(taken)
	}
}

// beginOperation checks a new operation and rejects it if it is impossible.
func (s *stepView) beginOperation(o *operation) {
	n := s.byID[o.Node]
	if n == nil && (o.Kind == OperationLeave || o.Kind == OperationRenew) {
		return // the node has left already and holds nothing
	}
	if n == nil && o.Kind != OperationRebalance {
		o.reject("node %s is not a member", o.Node)
		return
	}
	switch o.Kind {
	case OperationResume:
		s.clearDamage(n.Node)
		if n.Status == meta.StatusDown {
			o.reject("node %s is down: start it to let it join again", o.Node)
		}
		for _, other := range s.operations {
			if other.Node == o.Node && (other.Kind == OperationDrain || other.Kind == OperationLeave) && other.done == nil {
				other.reject("node %s was resumed", o.Node)
			}
		}
	case OperationLeave:
		if n.Status == meta.StatusDown && !n.Leaving {
			p, _ := s.pendingForNode(n)
			o.reject("node %s is down and will be removed once no shard needs it; %d still do: %s", o.Node, p.Remaining, p.Reason)
		}
		o.rejectLastHost(n, s.nodes)
	case OperationRenew:
		if n.Status == meta.StatusDown && n.Downed {
			return // the operation was accepted earlier, and is requested again
		}
		if why := s.renewObstacle(n); why != "" {
			o.reject("%s", why)
		}
	case OperationRebalance:
		if s.rebalanceBlocked != "" {
			o.reject("cannot rebalance now: %s", s.rebalanceBlocked)
			return
		}
		clear(s.pinnedLeaders)
	case OperationDown:
		o.rejectLastHost(n, s.nodes)
	case OperationMove, OperationDrain:
	default:
		o.reject("unknown operation kind %d", o.Kind)
	}
}

// rejectLastHost rejects the operation if it would remove the last node that
// can hold data.
func (o *operation) rejectLastHost(n *node, nodes []*node) {
	for _, other := range nodes {
		if other != n && other.canHost() {
			return
		}
	}
	if n.canHost() {
		o.reject("node %s is the last storage node that is up: add another one first", o.Node)
	}
}

// writeOperation issues the metadata commands of an operation, until the
// operation is durable.
func (s *stepView) writeOperation(o *operation) {
	n := s.byID[o.Node]
	if n == nil || o.done != nil || o.durable {
		return
	}
	before := len(s.plan.Commands)
	defer func() { s.writesOperation = s.writesOperation || len(s.plan.Commands) > before }()
	switch o.Kind {
	case OperationDrain:
		if !n.Draining {
			s.command(meta.SetDraining(n.Node, n.Incarnation, true))
		}
		n.Draining = true // the rest of the step acts as if the command had been applied
		s.closeNode(n)
	case OperationResume:
		if n.Draining {
			s.command(meta.SetDraining(n.Node, n.Incarnation, false))
		}
		if n.Status == meta.StatusLeaving {
			s.setStatus(n, meta.StatusUp)
		}
	case OperationLeave:
		if n.Status != meta.StatusLeaving && !n.Leaving {
			s.setStatus(n, meta.StatusLeaving)
		}
	case OperationDown, OperationRenew:
		if !n.Downed {
			s.command(meta.Down(o.Node))
		}
	}
}

// closeNode stops the strategy from placing anything on the node.
func (s *stepView) closeNode(n *node) {
	for i := range s.state.Nodes {
		if s.state.Nodes[i].ID == n.Node {
			s.state.Nodes[i].Hosts, s.state.Nodes[i].Leads = false, false
		}
	}
}

// followOperations makes the next steps of move operations.
func (s *stepView) followOperations() {
	for _, o := range s.operations {
		if o.done == nil && o.Kind == OperationMove {
			s.followMove(o)
		}
	}
}

func (s *stepView) followMove(o *operation) {
	n, sh := s.byID[o.Node], s.shard(o.Shard)
	switch {
	case n == nil || !n.canHost():
		o.reject("node %s cannot hold shard %d", o.Node, o.Shard)
		return
	case sh == nil:
		o.reject("shard %d has no replicas yet", o.Shard)
		return
	case n.draining || n.Draining:
		o.reject("node %s is being drained", o.Node)
		return
	case n.full:
		o.reject("the disk of node %s is full", o.Node)
		return
	case n.rejected:
		o.reject("replicas on node %s were repeatedly damaged: check its disk and memory, then run 'hostd node resume %s'", o.Node, o.Node)
		return
	case sh.lead == nil || sh.busy:
		return
	}
	r, holds := sh.ReplicaOn(o.Node)
	away, moving := s.pendingTransfers[o.Shard]
	switch {
	case sh.leader == n && moving && away.to != o.Node:
		// Wait until the pending transfer has completed or timed out.
	case sh.leader == n:
		o.done = &Progress{ID: o.ID, Done: true}
		s.pinnedLeaders[o.Shard] = o.Node
	case slices.Contains(s.transferTargets(sh), n):
		s.transferLeadership(sh, n)
	case !holds && sh.index >= 0 && n.canTake():
		s.buildLearners(sh, []sharding.NodeID{o.Node})
	case holds && r.State == meta.ReplicaLearner && sh.converged && slices.Contains(sh.promotable, r):
		s.swapVote(sh, r)
	}
}

// swapVote promotes the learner and demotes another replica, which stays as a
// learner.
func (s *stepView) swapVote(sh *shard, learner meta.Replica) {
	var have []sharding.NodeID
	for _, r := range sh.Replicas {
		if r.State == meta.ReplicaVoter && !slices.Contains(sh.badVoters, r) {
			have = append(have, r.Node)
		}
	}
	if r, ok := sh.ReplicaOn(s.opts.Strategy.Evict(s.state, have, nil)); ok {
		s.change(sh, meta.Change{Promote: []sharding.ReplicaID{learner.ID}, Demote: []sharding.ReplicaID{r.ID}})
	}
}

// report reports the progress of all operations and drops finished operations.
func (s *stepView) report() {
	for _, o := range s.operations {
		p := Progress{ID: o.ID}
		if o.done != nil {
			p = *o.done
		} else {
			p = s.progress(o)
			if p.Remaining != o.left {
				o.left, o.since = p.Remaining, s.now
			}
			if !p.Done && s.now.Sub(o.since) > s.opts.OperationTimeout {
				p.Done, p.Err = true, fmt.Errorf("%w: %d steps remain", ErrTimeout, p.Remaining)
			}
			o.durable = o.durable || p.Durable || p.Done
			p.Durable = o.durable
		}
		o.done = &p
		s.plan.Progress = append(s.plan.Progress, p)
	}
	s.operations = slices.DeleteFunc(s.operations, func(o *operation) bool { return o.done.Done })
	for _, o := range s.operations {
		o.done = nil
	}
}

func (s *stepView) progress(o *operation) Progress {
	p := Progress{ID: o.ID, Remaining: 1}
	n := s.byID[o.Node]
	m, member := s.view.Member(o.Node)
	switch o.Kind {
	case OperationDrain:
		if n == nil {
			return Progress{ID: o.ID, Done: true}
		}
		all, movable := s.countLed(o.Node)
		unseen, _ := s.countPossiblyLed(n)
		idle, ended := movable+unseen == 0 && n.latest != nil, o.durable && !m.Draining // a restart ended the drain
		return Progress{ID: o.ID, Remaining: all + unseen, Durable: m.Draining, Done: m.Draining && idle || ended}
	case OperationResume:
		p.Done = !member || m.Status != meta.StatusLeaving && !m.Draining
	case OperationLeave:
		if n == nil {
			return Progress{ID: o.ID, Done: true}
		}
		p.Remaining, p.Durable = n.replicas+1, m.Status == meta.StatusLeaving || m.Leaving
	case OperationDown, OperationRenew:
		p.Done = !member || m.Downed
	case OperationMove:
		p.Durable = true
	case OperationRebalance:
		p.Durable = true
		p.Remaining = s.building + len(s.pendingTransfers)
		if o.idleSteps++; p.Remaining > 0 || s.rebalanceBlocked != "" || len(s.plan.Commands)+len(s.plan.Transfers) > 0 {
			o.idleSteps = 0
		}
		p.Done = o.idleSteps >= 2
	}
	if p.Done {
		p.Remaining = 0
	}
	return p
}
