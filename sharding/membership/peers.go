package membership

import (
	"cmp"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/hostd/hostd/sharding"
)

// Peer is another node as gossip knows it.
type Peer struct {
	ID          sharding.NodeID
	Incarnation uint64 // the highest incarnation seen
	Address     string // host:port announced by the node
	Gossip      string // IP address and port for gossip
	Cluster     string // empty while the node belongs to none
	Disk        string
	// Reachable means that the node answers this node, or nodes that this node can
	// reach.
	Reachable bool
	// Left means that the node announced that it stops, and has stopped.
	Left bool
}

// maxPeers limits the remembered peers. Unreachable peers are dropped first.
const maxPeers = 1024

const (
	// maxNames limits the names that memberlist may keep. A node has a new name
	// after each start.
	maxNames = 2 * maxPeers
	// A name counts toward maxNames for nameAge after its node was last alive.
	// memberlist forgets names earlier.
	nameAge = 2 * time.Minute
)

// errCrowded rejects new nodes while gossip knows too many. Anyone who can send
// gossip could invent nodes, and memberlist would keep them all.
var errCrowded = errors.New("too many known nodes")

// peers stores the nodes that gossip has seen. memberlist calls it while
// holding its own lock, so the callbacks only update maps.
type peers struct {
	self   sharding.NodeID
	latest func(sharding.NodeID) uint64

	mu      sync.Mutex
	cluster string
	known   map[sharding.NodeID]*peerState
	names   map[string]time.Time // time since when a name is not alive; zero if it is alive
	now     func() time.Time
	changed chan struct{} // closed and replaced on each change
}

type peerState struct {
	Peer
	leaving bool
}

func newPeers(self sharding.NodeID, cluster string, latest func(sharding.NodeID) uint64) *peers {
	return &peers{self: self, latest: latest, cluster: cluster, known: map[sharding.NodeID]*peerState{}, names: map[string]time.Time{}, now: time.Now, changed: make(chan struct{})}
}

// NotifyAlive implements memberlist.AliveDelegate. Returning an error rejects
// the node.
func (p *peers) NotifyAlive(n *memberlist.Node) error {
	a, err := decodeMeta(n.Meta)
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

// admit counts a name that memberlist may keep from now on. The lock must be
// held.
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
	p.names[name] = p.now() // not alive until NotifyJoin
	return nil
}

// NotifyJoin implements memberlist.EventDelegate.
func (p *peers) NotifyJoin(n *memberlist.Node) { p.record(n, true) }

// NotifyUpdate implements memberlist.EventDelegate.
func (p *peers) NotifyUpdate(n *memberlist.Node) { p.record(n, true) }

// NotifyLeave implements memberlist.EventDelegate.
func (p *peers) NotifyLeave(n *memberlist.Node) { p.record(n, false) }

func (p *peers) record(n *memberlist.Node, alive bool) {
	a, err := decodeMeta(n.Meta)
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
	case s == nil && (!alive || !p.makeRoom()):
		return
	case s == nil:
		s = &peerState{}
		p.known[a.node] = s
	case a.incarnation < s.Incarnation:
		return // an older incarnation of the node
	}
	before := *s
	*s = peerState{
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

// makeRoom drops an unreachable peer if the limit is reached, and reports
// whether there is room for one more peer. The lock must be held.
func (p *peers) makeRoom() bool {
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

// list returns the peers, sorted by id. It omits nodes of other clusters, which
// may have been recorded before this node belonged to a cluster.
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

// announcedName returns the address that an incarnation of a node has
// announced, given its name in memberlist, if that address has a host name.
// Otherwise it returns "".
func (p *peers) announcedName(name string) string {
	id, _, _ := strings.Cut(name, nameSeparator)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.known[sharding.NodeID(id)]
	if s == nil {
		return ""
	}
	if m := (nodeMeta{node: s.ID, incarnation: s.Incarnation}); m.name() != name {
		return ""
	}
	return s.hostName()
}

// hostName returns the announced address if it has a host name, otherwise "".
func (s *peerState) hostName() string {
	if host, _, err := net.SplitHostPort(s.Address); err != nil || net.ParseIP(host) != nil {
		return ""
	}
	return s.Address
}

// missing returns three lists: the gossip addresses of unreachable peers that
// have not left, those addresses with host names that such peers announced, and
// the gossip addresses of the reachable peers.
func (p *peers) missing() (lost, names []string, inSight map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	inSight = map[string]bool{}
	for _, s := range p.known {
		if s.Reachable {
			inSight[s.Gossip] = true
		} else if !s.Left {
			lost = append(lost, s.Gossip)
			if name := s.hostName(); name != "" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(lost)
	slices.Sort(names)
	return lost, names, inSight
}

func (p *peers) changes() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}
