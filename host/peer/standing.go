package peer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hostd/hostd/sharding"
)

// Standing is the status of an incarnation of another node in this node's
// metadata.
type Standing int

const (
	// StandingUnknown: the node is not a member.
	StandingUnknown Standing = iota
	// StandingMember: the node is a member and an operator has not put it down.
	// Its other status does not matter.
	StandingMember
	// StandingOutside: an operator put the node down, and this later
	// incarnation has not been admitted yet.
	StandingOutside
	// StandingPutDown: an operator put this incarnation or a later one down.
	StandingPutDown
)

// Members is this node's metadata about other nodes.
type Members interface {
	// Standing is called for every call, so it must not block or allocate.
	Standing(node sharding.NodeID, start uint64) Standing
	// Confirm returns when this node has applied everything that the metadata
	// shard had committed before the call. Concurrent calls share one read.
	Confirm(ctx context.Context) error
}

// Bounds of the calls that wait for a read of the metadata, because this node
// does not know their caller as a member.
const (
	lookupTime     = 2 * time.Second
	maxLookups     = 64 // concurrent calls
	maxNodeLookups = 16 // concurrent calls of one node
)

// lookups counts the waiting calls.
type lookups struct {
	mu    sync.Mutex
	all   int
	nodes map[sharding.NodeID]int
}

func (l *lookups) enter(node sharding.NodeID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxLookups || l.nodes[node] >= maxNodeLookups {
		return false
	}
	if l.nodes == nil {
		l.nodes = map[sharding.NodeID]int{}
	}
	l.all++
	l.nodes[node]++
	return true
}

func (l *lookups) leave(node sharding.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.nodes[node]--; l.nodes[node] == 0 {
		delete(l.nodes, node)
	}
}

// SetMembers sets the members. Before SetMembers, calls that need a member
// fail with ErrUnavailable.
func (p *Peers) SetMembers(m Members) { p.members.Store(&m) }

// standing returns the status of a caller or answering node.
func (p *Peers) standing(h Hello) Standing {
	members := p.members.Load()
	if members == nil {
		return StandingUnknown
	}
	return (*members).Standing(h.Node, h.Incarnation)
}

// mayStart rejects an incarnation that an operator put down.
func (p *Peers) mayStart(h Hello) error {
	if p.standing(h) != StandingPutDown {
		return nil
	}
	return fmt.Errorf("%w: start %d of node %s; restart the node", ErrPutDown, h.Incarnation, h.Node)
}

// isMember rejects a node that is not a member. The metadata on this node may
// be stale, so a node that is missing in it is rejected only after a read of
// the metadata shard.
func (p *Peers) isMember(ctx context.Context, h Hello) error {
	switch p.standing(h) {
	case StandingMember:
		return nil
	case StandingPutDown:
		return p.mayStart(h)
	}
	if err := p.lookUp(ctx, h.Node); err != nil {
		return fmt.Errorf("%w: node %s does not know node %s, and cannot ask the metadata shard: %w", ErrUnavailable, p.opts.Self, h.Node, err)
	}
	switch p.standing(h) {
	case StandingMember:
		return nil
	case StandingUnknown:
		return fmt.Errorf("%w: node %s has not joined the cluster, or has left it", ErrNotMember, h.Node)
	default:
		return fmt.Errorf("%w: an operator declared node %s down, and it has not joined again", ErrNotMember, h.Node)
	}
}

func (p *Peers) lookUp(ctx context.Context, node sharding.NodeID) error {
	members := p.members.Load()
	if members == nil {
		return errStarting
	}
	if !p.lookups.enter(node) {
		return errLookups
	}
	defer p.lookups.leave(node)
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	return (*members).Confirm(ctx)
}

// Sever ends the open calls of a node to this node, and this node's link to
// that node. Call it after Standing has changed: later calls are rejected
// because of the new standing.
func (p *Peers) Sever(node sharding.NodeID) {
	q := (*p.table.Load())[node]
	if q == nil {
		return
	}
	q.mu.Lock()
	calls := make([]*served, 0, len(q.calling))
	for s := range q.calling {
		calls = append(calls, s)
	}
	cut := q.cut
	q.mu.Unlock()
	for _, s := range calls {
		s.abort()
	}
	if cut != nil {
		cut(errSevered)
	}
}

// addCall records a call, so that Sever ends it.
func (q *peer) addCall(s *served) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.calling == nil {
		q.calling = map[*served]struct{}{}
	}
	q.calling[s] = struct{}{}
}

// removeCall removes the call.
func (q *peer) removeCall(s *served) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.calling, s)
}
