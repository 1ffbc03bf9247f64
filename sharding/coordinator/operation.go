package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// OperationKind says what an operator asks for.
type OperationKind int

// The operations. What Drain, Resume, Leave and Down ask for is written into
// the metadata and goes on whoever coordinates; the others end with the
// coordinator that took them.
const (
	// OperationMove: Node is to lead Shard. If it holds no replica that votes, one
	// is moved there first. Balance alone does not undo it while Node leads.
	OperationMove OperationKind = iota + 1
	// OperationDrain: Node is to lead nothing until it starts anew or is resumed.
	// It is done when all is handed over that another node votes in; Remaining
	// then counts the rest.
	OperationDrain
	// OperationResume takes OperationDrain back, and OperationLeave as long as the
	// node is a member.
	OperationResume
	// OperationLeave: Node is to leave the cluster. It is done when the node is no
	// member any more.
	OperationLeave
	// OperationDown: Node is to be taken for dead now.
	OperationDown
	// OperationRebalance: replicas and leaders are to be evened out, even where
	// the policy has rebalancing off.
	OperationRebalance
	// OperationRenew: Node's data is damaged, and it is to give it up and be
	// filled by the others. It is refused where that could lose something; else
	// the node is taken for dead, as by OperationDown, and may put its data aside.
	OperationRenew
)

// MaxOperations bounds the operations that are not done at one time. Each is
// looked at in every step.
const MaxOperations = 1024

// Operation is what an operator asks for. The caller numbers its operations;
// numbers are not used again.
type Operation struct {
	ID    uint64
	Kind  OperationKind
	Shard sharding.ShardID
	Node  sharding.NodeID
}

// String is for logs.
func (o Operation) String() string {
	switch o.Kind {
	case OperationMove:
		return fmt.Sprintf("move shard %d to node %s", o.Shard, o.Node)
	case OperationDrain:
		return fmt.Sprintf("drain node %s", o.Node)
	case OperationResume:
		return fmt.Sprintf("resume node %s", o.Node)
	case OperationLeave:
		return fmt.Sprintf("let node %s leave", o.Node)
	case OperationDown:
		return fmt.Sprintf("put node %s down", o.Node)
	case OperationRebalance:
		return "rebalance"
	case OperationRenew:
		return fmt.Sprintf("renew the data of node %s", o.Node)
	}
	return fmt.Sprintf("order of kind %d", o.Kind)
}

// Progress is how far an operation is.
type Progress struct {
	ID   uint64
	Done bool
	// Stands: what the operation asks for does not end with this coordinator, as
	// far as it ever will. It is so in the metadata where that keeps the
	// operation.
	Stands bool
	// Err is why a Done operation was not carried out: ErrRefused or ErrTimeout,
	// wrapped.
	Err error
	// Remaining counts what is left: leaderships to move, replicas to move or
	// to build.
	Remaining int
}

// Errors of operations.
var (
	// ErrRefused: the operation cannot be carried out in the cluster as it is.
	ErrRefused = errors.New("coordinator: order refused")
	// ErrTimeout: the operation got nowhere for too long. What it began is brought
	// to an end or taken back by itself.
	ErrTimeout = errors.New("coordinator: order not carried out in time")
)

// operation is one under way.
type operation struct {
	Operation
	since time.Time // of its last progress
	left  int       // Remaining as of then
	stood bool      // Stands was said
	// quiet counts the steps in a row in which a rebalance had nothing to do.
	quiet int
	done  *Progress
}

func (o *operation) refuse(format string, args ...any) {
	o.done = &Progress{ID: o.ID, Done: true, Err: fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))}
}

// takeOperations begins new operations. A second operation to move a shard
// replaces the first.
func (s *stepView) takeOperations(operations []Operation) {
	for _, o := range s.operations {
		s.insist(o)
	}
	for _, o := range operations {
		for _, other := range s.operations {
			if o.Kind == OperationMove && other.Kind == OperationMove && other.Shard == o.Shard && other.done == nil {
				other.refuse("another order moves shard %d to node %s", o.Shard, o.Node)
			}
		}
		taken := &operation{Operation: o, since: s.now}
		s.operations = append(s.operations, taken)
		s.begin(taken)
		s.insist(taken)
	}
}

// begin judges a new operation.
func (s *stepView) begin(o *operation) {
	n := s.byID[o.Node]
	if n == nil && (o.Kind == OperationLeave || o.Kind == OperationRenew) {
		return // it has left, and holds nothing
	}
	if n == nil && o.Kind != OperationRebalance {
		o.refuse("node %s is no member", o.Node)
		return
	}
	switch o.Kind {
	case OperationResume:
		s.forgive(n.Node)
		if n.Status == meta.StatusDown {
			o.refuse("node %s is down: it joins as a new one when it is started", o.Node)
		}
		for _, other := range s.operations {
			if other.Node == o.Node && (other.Kind == OperationDrain || other.Kind == OperationLeave) && other.done == nil {
				other.refuse("node %s is resumed", o.Node)
			}
		}
	case OperationLeave:
		if n.Status == meta.StatusDown && !n.Leaving {
			p, _ := s.pendingOf(n)
			o.refuse("node %s is down and is removed once no shard counts on it; %d still do: %s", o.Node, p.Remaining, p.Reason)
		}
		o.keepLast(n, s.nodes)
	case OperationRenew:
		if n.Status == meta.StatusDown && n.Downed {
			return // it was told so before, and asks again
		}
		if why := s.renewable(n); why != "" {
			o.refuse("%s", why)
		}
	case OperationRebalance:
		if s.unrest != "" {
			o.refuse("replicas do not move for balance now: %s", s.unrest)
			return
		}
		clear(s.pins)
	case OperationDown:
		o.keepLast(n, s.nodes)
	case OperationMove, OperationDrain:
	default:
		o.refuse("order of kind %d", o.Kind)
	}
}

// keepLast refuses to give up the one of the nodes that may hold data.
func (o *operation) keepLast(n *node, nodes []*node) {
	for _, other := range nodes {
		if other != n && other.host() {
			return
		}
	}
	if n.host() {
		o.refuse("node %s is the last that is up and holds data: add another first", o.Node)
	}
}

// insist writes down what an operation asks for, until it stands.
func (s *stepView) insist(o *operation) {
	n := s.byID[o.Node]
	if n == nil || o.done != nil || o.stood {
		return
	}
	before := len(s.plan.Commands)
	defer func() { s.writes = s.writes || len(s.plan.Commands) > before }()
	switch o.Kind {
	case OperationDrain:
		if !n.Draining {
			s.command(meta.SetDraining(n.Node, n.Incarnation, true))
		}
		n.Draining = true // what follows acts as if that were done
		s.closeTo(n)
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

// closeTo lets the strategy give the node nothing more.
func (s *stepView) closeTo(n *node) {
	for i := range s.state.Nodes {
		if s.state.Nodes[i].ID == n.Node {
			s.state.Nodes[i].Hosts, s.state.Nodes[i].Leads = false, false
		}
	}
}

// followOperations takes the next steps of operations to move.
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
	case n == nil || !n.host():
		o.refuse("node %s may not hold shard %d", o.Node, o.Shard)
		return
	case sh == nil:
		o.refuse("shard %d is not placed", o.Shard)
		return
	case n.draining || n.Draining:
		o.refuse("node %s is being drained", o.Node)
		return
	case n.full:
		o.refuse("the disk of node %s is full", o.Node)
		return
	case n.rejected:
		o.refuse("replicas on node %s were damaged again and again: look at its disk and memory, then 'hostd node resume %s'", o.Node, o.Node)
		return
	case sh.lead == nil || sh.busy:
		return
	}
	r, holds := sh.On(o.Node)
	away, moving := s.moving[o.Shard]
	switch {
	case sh.leader == n && moving && away.to != o.Node:
		// Once the hand-over is through, or given up, it is seen who leads.
	case sh.leader == n:
		o.done = &Progress{ID: o.ID, Done: true}
		s.pins[o.Shard] = o.Node
	case slices.Contains(s.heirs(sh), n):
		s.handOver(sh, n)
	case !holds && sh.index >= 0 && n.able():
		s.build(sh, []sharding.NodeID{o.Node})
	case holds && r.State == meta.ReplicaLearner && sh.settled && slices.Contains(sh.ripe, r):
		s.exchange(sh, r)
	}
}

// exchange gives the learner the vote of another replica, which stays.
func (s *stepView) exchange(sh *shard, learner meta.Replica) {
	var have []sharding.NodeID
	for _, r := range sh.Replicas {
		if r.State == meta.ReplicaVoter && !slices.Contains(sh.badVoters, r) {
			have = append(have, r.Node)
		}
	}
	if r, ok := sh.On(s.opts.Strategy.Evict(s.state, have, nil)); ok {
		s.change(sh, meta.Change{Promote: []sharding.ReplicaID{learner.ID}, Demote: []sharding.ReplicaID{r.ID}})
	}
}

// report says how far the operations are, and drops those that are done.
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
				p.Done, p.Err = true, fmt.Errorf("%w: %d steps are left", ErrTimeout, p.Remaining)
			}
			o.stood = o.stood || p.Stands || p.Done
			p.Stands = o.stood
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
		all, movable := s.leading(o.Node)
		unseen, _ := s.unseen(n)
		idle, ended := movable+unseen == 0 && n.heard != nil, o.stood && !m.Draining // ended by a new start
		return Progress{ID: o.ID, Remaining: all + unseen, Stands: m.Draining, Done: m.Draining && idle || ended}
	case OperationResume:
		p.Done = !member || m.Status != meta.StatusLeaving && !m.Draining
	case OperationLeave:
		if n == nil {
			return Progress{ID: o.ID, Done: true}
		}
		p.Remaining, p.Stands = n.replicas+1, m.Status == meta.StatusLeaving || m.Leaving
	case OperationDown, OperationRenew:
		p.Done = !member || m.Downed
	case OperationMove:
		p.Stands = true
	case OperationRebalance:
		p.Stands = true
		p.Remaining = s.building + len(s.moving)
		if o.quiet++; p.Remaining > 0 || s.unrest != "" || len(s.plan.Commands)+len(s.plan.Transfers) > 0 {
			o.quiet = 0
		}
		p.Done = o.quiet >= 2
	}
	if p.Done {
		p.Remaining = 0
	}
	return p
}
