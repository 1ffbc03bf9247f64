package membership

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/hostd/hostd/sharding"
)

// Peer is a node as gossip knows it. This node is not among the peers.
type Peer struct {
	ID          sharding.NodeID
	Incarnation uint64 // the newest that was seen
	Address     string // host:port, as the node gave it
	Gossip      string // IP address and port that gossip to it goes to
	Cluster     string // empty while the node belongs to none
	Disk        string
	// Reachable: it answers this node or others that this node sees.
	Reachable bool
	// Left: it said that it stops, and is gone.
	Left bool
}

// maxPeers bounds the peers that are remembered; the first to go is one that
// is out of sight.
const maxPeers = 1024

const (
	// maxNames bounds the names that memberlist is let keep. A node has another
	// one at each start.
	maxNames = 2 * maxPeers
	// nameAge is for how long a name counts that is not alive any more, longer than
	// memberlist keeps it.
	nameAge = 2 * time.Minute
)

// errCrowded keeps new nodes out while gossip knows too many: anybody who may
// send gossip could make them up, and memberlist would keep them all.
var errCrowded = errors.New("too many nodes are known")

// peers is what was seen. It takes memberlist's callbacks, which come with
// memberlist's lock held: they only write here.
type peers struct {
	self   sharding.NodeID
	latest func(sharding.NodeID) uint64

	mu      sync.Mutex
	cluster string
	known   map[sharding.NodeID]*seen
	names   map[string]time.Time // since when they are not alive; zero for those that are
	now     func() time.Time
	changed chan struct{} // closed and replaced at each change
}

type seen struct {
	Peer
	leaving bool
}

func newPeers(self sharding.NodeID, cluster string, latest func(sharding.NodeID) uint64) *peers {
	return &peers{self: self, latest: latest, cluster: cluster, known: map[sharding.NodeID]*seen{}, names: map[string]time.Time{}, now: time.Now, changed: make(chan struct{})}
}

// NotifyAlive implements memberlist.AliveDelegate: an error keeps a node out.
func (p *peers) NotifyAlive(n *memberlist.Node) error {
	a, err := decodeAbout(n.Meta)
	if err != nil {
		return err
	}
	if a.name() != n.Name {
		return errMalformed
	}
	if a.node != p.self && a.incarnation > p.latest(a.node) {
		return errFuture
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cluster != "" && a.cluster != "" && a.cluster != p.cluster {
		return errOtherCluster
	}
	return p.admit(n.Name)
}

// admit counts a name, which memberlist may keep from now on. It is called with
// the lock held.
func (p *peers) admit(name string) error {
	if _, counted := p.names[name]; counted {
		return nil
	}
	if now := p.now(); len(p.names) >= maxNames {
		maps.DeleteFunc(p.names, func(_ string, gone time.Time) bool { return !gone.IsZero() && now.Sub(gone) > nameAge })
		if len(p.names) >= maxNames {
			return errCrowded
		}
	}
	p.names[name] = p.now() // until it has joined
	return nil
}

// NotifyJoin implements memberlist.EventDelegate.
func (p *peers) NotifyJoin(n *memberlist.Node) { p.note(n, true) }

// NotifyUpdate implements memberlist.EventDelegate.
func (p *peers) NotifyUpdate(n *memberlist.Node) { p.note(n, true) }

// NotifyLeave implements memberlist.EventDelegate.
func (p *peers) NotifyLeave(n *memberlist.Node) { p.note(n, false) }

func (p *peers) note(n *memberlist.Node, alive bool) {
	a, err := decodeAbout(n.Meta)
	if err != nil || a.node == p.self {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names[n.Name] = (time.Time{}); !alive {
		p.names[n.Name] = p.now()
	}
	s := p.known[a.node]
	switch {
	case s == nil && (!alive || !p.room()):
		return
	case s == nil:
		s = &seen{}
		p.known[a.node] = s
	case a.incarnation < s.Incarnation:
		return // an older start of the node
	}
	before := *s
	*s = seen{
		Peer: Peer{
			ID: a.node, Incarnation: a.incarnation, Address: a.address, Cluster: a.cluster, Disk: a.disk,
			Gossip: n.Address(), Reachable: alive, Left: !alive && a.leaving,
		},
		leaving: a.leaving,
	}
	if *s != before {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// room is called with the lock held: it forgets a peer out of sight where
// there is no room for another.
func (p *peers) room() bool {
	if len(p.known) < maxPeers {
		return true
	}
	for id, s := range p.known {
		if !s.Reachable {
			delete(p.known, id)
			return true
		}
	}
	return false
}

func (p *peers) setCluster(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cluster = id
}

// list returns the peers ordered by id, without those of another cluster, which
// may have been seen before this node was of one.
func (p *peers) list() []Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Peer, 0, len(p.known))
	for _, s := range p.known {
		if p.cluster == "" || s.Cluster == "" || s.Cluster == p.cluster {
			out = append(out, s.Peer)
		}
	}
	slices.SortFunc(out, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// missing returns the gossip addresses of peers that are out of sight without
// having left, and those of the peers in sight.
func (p *peers) missing() (lost []string, inSight map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	inSight = map[string]bool{}
	for _, s := range p.known {
		if s.Reachable {
			inSight[s.Gossip] = true
		} else if !s.Left {
			lost = append(lost, s.Gossip)
		}
	}
	slices.Sort(lost)
	return lost, inSight
}

func (p *peers) change() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}
