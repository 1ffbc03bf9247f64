package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/bootstrap"
)

// ballot stores this node's bootstrap vote.
type ballot interface {
	// SaveVote makes a vote durable.
	SaveVote(bootstrap.Vote) error
}

// Bootstrap is a node's part in the decision which node bootstraps the cluster.
// It is safe for concurrent use.
type Bootstrap struct {
	self   sharding.NodeID
	ballot ballot
	wants  bool
	expect int
	order  chan struct{} // one slot: an order that Enter has not seen

	mu      sync.Mutex
	core    *bootstrap.Candidate
	stored  bootstrap.Vote
	ordered bool
	stage   Stage
	known   string // the cluster to which a seed belongs, according to its answer; empty if no such seed has answered
}

// Stage describes how far a node has come in joining or bootstrapping a
// cluster.
type Stage struct {
	// Unanswered are the addresses of seeds that did not answer in the last round.
	Unanswered []string
	// Waits says what the node waits for.
	Waits string
	// Cluster is the cluster to which a seed said that it belongs, if any. The
	// node waits until this cluster admits it, and bootstraps none.
	Cluster string
}

// NewBootstrap returns the state of a node that starts without a cluster.
// given is the node's last durable bootstrap vote, and b makes votes
// durable. wants means that the node is configured to bootstrap a cluster;
// expect is the number of nodes, including this one, that must be present
// before it does so.
func NewBootstrap(self sharding.NodeID, start uint64, given bootstrap.Vote, wants bool, expect int, b ballot) *Bootstrap {
	return &Bootstrap{
		self: self, ballot: b, core: bootstrap.New(self, start, given), stored: given, wants: wants, expect: expect, order: make(chan struct{}, 1),
	}
}

// Order makes the node bootstrap a cluster by an operator's order, unless a
// seed already belongs to a cluster. The order is valid until the process
// ends.
func (f *Bootstrap) Order() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ordered {
		return
	}
	f.ordered = true
	f.order <- struct{}{}
}

// Wants reports whether the node should bootstrap a cluster, because of its
// configuration or an operator's order.
func (f *Bootstrap) Wants() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wants || f.ordered
}

// Stage returns how far the node has come.
func (f *Bootstrap) Stage() Stage {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stage
}

// setStage sets how far the node has come.
func (f *Bootstrap) setStage(s Stage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Cluster = f.known
	f.stage = s
}

// learnCluster records that there is a cluster. From then on, until the process
// ends, this node neither bootstraps one nor votes for a node that does, even if
// no node of the cluster answers any more: its members may come back with their
// data.
func (f *Bootstrap) learnCluster(cluster string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = cluster
}

// knownCluster returns the cluster that learnCluster recorded.
func (f *Bootstrap) knownCluster() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known
}

// saveVote makes the bootstrap vote durable if it has changed. f.mu must be held.
func (f *Bootstrap) saveVote() error {
	given := f.core.Vote()
	if given == f.stored {
		return nil
	}
	if err := f.ballot.SaveVote(given); err != nil {
		return fmt.Errorf("store a bootstrap vote: %w", err)
	}
	f.stored = given
	return nil
}

// handleVoteRequest answers another node's request for this node's vote.
func (f *Bootstrap) handleVoteRequest(by bootstrap.Vote, back bool) (to sharding.NodeID, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	to = f.core.HandleRequest(by, back)
	return to, f.saveVote()
}

func (f *Bootstrap) begin() (ask bootstrap.Vote, back bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ask, back = f.core.Begin(f.wants || f.ordered, f.ordered)
	return ask, back, f.saveVote()
}

func (f *Bootstrap) decide(attempt bootstrap.Vote, answers []bootstrap.Answer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.core.Decide(attempt, f.expect, answers)
}

// SetBootstrap makes the Control answer bootstrap calls while the node has
// no cluster. After SetBootstrap(nil), it rejects these calls.
func (c *Control) SetBootstrap(f *Bootstrap) { c.bootstrap.Store(f) }

// BootstrapVote implements peer.Control.
func (c *Control) BootstrapVote(ctx context.Context, r *peerv1.PledgeRequest) (*peerv1.PledgeResponse, error) {
	n, f := c.node.Load(), c.bootstrap.Load()
	switch {
	case n == nil:
		return nil, errNotOpen
	case n.GetClusterId() != "":
		return &peerv1.PledgeResponse{NodeId: n.GetNodeId(), ClusterId: n.GetClusterId()}, nil
	case f == nil:
		return nil, errNotOpen
	case f.knownCluster() != "":
		return &peerv1.PledgeResponse{NodeId: n.GetNodeId(), ClusterId: f.knownCluster()}, nil
	}
	caller := peer.CallerOf(ctx)
	to, err := f.handleVoteRequest(bootstrap.Vote{Node: caller.Node, Start: caller.Incarnation, Round: r.GetRound(), Ordered: r.GetOrdered()}, r.GetBack())
	return &peerv1.PledgeResponse{NodeId: n.GetNodeId(), To: string(to)}, err
}

// runBootstrapVote runs one round of the bootstrap vote and returns whether this node
// bootstraps the cluster.
func (e Entry) runBootstrapVote(ctx context.Context) (bool, error) {
	attempt, back, err := e.Bootstrap.begin()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	addresses := e.addresses(ctx)
	answers := make([]bootstrap.Answer, len(addresses))
	ask := &peerv1.PledgeRequest{Round: attempt.Round, Back: back, Ordered: attempt.Ordered}
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() {
			if r, err := e.Peers.BootstrapVote(ctx, address, ask); err == nil {
				answers[i] = bootstrap.Answer{Node: sharding.NodeID(r.GetNodeId()), VotedFor: sharding.NodeID(r.GetTo()), Cluster: r.GetClusterId()}
			}
		})
	}
	asked.Wait()
	founds := !back && e.Bootstrap.decide(attempt, answers)
	e.Bootstrap.setStage(e.stage(addresses, answers))
	return founds, nil
}

// stage describes the result of a round.
func (e Entry) stage(addresses []string, answers []bootstrap.Answer) Stage {
	var s Stage
	var waits []string
	for i, a := range answers {
		switch {
		case a.Node == "":
			s.Unanswered = append(s.Unanswered, addresses[i])
		case a.Cluster != "":
			waits = append(waits, fmt.Sprintf("seed %s belongs to cluster %s", addresses[i], a.Cluster))
		case a.VotedFor != "" && a.VotedFor != e.Self.Node:
			waits = append(waits, fmt.Sprintf("node %s gave its bootstrap vote to %s, which must bootstrap or return it", a.Node, a.VotedFor))
		}
	}
	if len(s.Unanswered) > 0 {
		waits = append(waits, fmt.Sprintf("%d of %d seeds do not answer: %s", len(s.Unanswered), len(addresses), strings.Join(s.Unanswered, ", ")))
	}
	s.Waits = strings.Join(waits, "; ")
	return s
}
