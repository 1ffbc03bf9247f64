package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/membership/seeds"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/sharding/staledisk"
)

// Bounds of the search for a cluster.
const (
	lookupTimeout = time.Second // of all names together
	probeTimeout  = time.Second
	joinTimeout   = 5 * time.Second
	minSearch     = 100 * time.Millisecond
	maxSearch     = 2 * time.Second
	logSearching  = 10 * time.Second
)

// errNodeInUse means that another running node has this node's name. Rename
// this node or stop the other node.
var errNodeInUse = errors.New("the node id is already in use")

// errLeft means that this node was ordered to leave the cluster and has left.
var errLeft = errors.New("this node has left the cluster, and may not join again with this data directory")

// raiser raises the incarnation of this process.
type raiser interface {
	// Raise durably replaces the incarnation by a higher one.
	Raise(incarnation uint64) error
}

// Entry joins a node to a cluster.
type Entry struct {
	Peers *peer.Peers
	Self  meta.Member // the node as it should be admitted
	// PeersAt is the address where other nodes reach this one now, at any
	// cluster version.
	PeersAt string
	Seeds   []string // as parsed by package seeds; a name may have several addresses
	// Bootstrap decides whether the node bootstraps the cluster. If nil, the
	// node may not.
	Bootstrap *Bootstrap
	// Lookup resolves names. The zero value uses the system's resolver.
	Lookup seeds.Lookup
	// Incarnations raises the incarnation of this process, which comes from
	// the clock, if the cluster has seen a later incarnation of the node,
	// for example from another disk and a different clock. May be nil.
	Incarnations raiser
	Logger       *slog.Logger

	// runs means that the cluster may know this incarnation already. The
	// incarnation is then not raised, because a raise would bring back an
	// incarnation that was put down.
	runs bool
}

// Joined is what a node needs to start as a member.
type Joined struct {
	Cluster        string
	Shards         uint32
	Format         uint32
	ClusterVersion sharding.ClusterVersion
	// Replica of the metadata shard must be created with the voters First.
	Replica     sharding.ReplicaID
	FirstVoters []sharding.ReplicaID
	// Nodes are the nodes of the metadata shard's replicas. Addresses are where
	// they listen.
	Nodes     map[sharding.ReplicaID]sharding.NodeID
	Addresses map[sharding.NodeID]string
}

// Enter asks the seeds until one of them admits the node or ctx ends. It
// returns nil without an error if this node must bootstrap the cluster itself.
func (e Entry) Enter(ctx context.Context) (*Joined, error) {
	pause, said := minSearch, time.Time{}
	var ordered <-chan struct{}
	if e.Bootstrap != nil {
		ordered = e.Bootstrap.order
	}
	for {
		answers, waits := e.probe(ctx), ""
		if len(answers) == 0 && e.Bootstrap != nil && e.Bootstrap.knownCluster() != "" {
			waits = fmt.Sprintf("this node's seeds belong to cluster %s, of which no node answers now", e.Bootstrap.knownCluster())
			e.Bootstrap.setStage(Stage{Waits: waits})
		} else if len(answers) == 0 && e.Bootstrap != nil {
			if founds, err := e.runBootstrapVote(ctx); err != nil || founds {
				return nil, err
			}
			waits = e.Bootstrap.Stage().Waits
		}
		if len(answers) > 0 && e.Bootstrap != nil {
			e.Bootstrap.learnCluster(answers[0].GetClusterId())
		}
		joined, err := e.ask(ctx, answers)
		if joined != nil || final(err) {
			return joined, err
		}
		if len(answers) > 0 && e.Bootstrap != nil {
			e.Bootstrap.setStage(Stage{Waits: fmt.Sprintf("a seed belongs to cluster %s, which has not admitted this node: %v", answers[0].GetClusterId(), err)})
		}
		if time.Since(said) >= logSearching {
			said = time.Now()
			e.Logger.Info("waiting for a seed that admits this node", "seeds", e.Seeds, "answered", len(answers), "error", err, "founding", waits)
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxSearch)
		case <-ordered:
			pause = minSearch
		case <-ctx.Done():
			return nil, fmt.Errorf("join a cluster: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// RejoinOnce asks once for admission again, for a node that may have been declared
// dead. known are the addresses of more nodes to ask in addition to the
// seeds. RejoinOnce fails if no node could grant admission.
func (e Entry) RejoinOnce(ctx context.Context, known []string) (*Joined, error) {
	e.Seeds, e.runs = slices.Concat(e.Seeds, known), true
	return e.ask(ctx, e.probe(ctx))
}

// Renew asks once whether this node, whose data is damaged, may discard its
// data. known are the addresses of more nodes to ask in addition to the seeds.
// A nil error means that the cluster has declared the node dead until it joins
// with an empty disk.
func (e Entry) Renew(ctx context.Context, known []string) error {
	e.Seeds = slices.Concat(e.Seeds, known)
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	last := errors.New("no node of the cluster answers")
	answers := e.own(e.probe(ctx))
	if e.isLeft(answers) {
		return errLeft
	}
	for _, a := range answers {
		address := a.GetLeaderAddress()
		if a.GetLeader() == a.GetNodeId() {
			address = a.address
		}
		if address == "" || a.GetLeader() == string(e.Self.Node) {
			last = errors.New("the metadata shard has no other known leader")
			continue
		}
		// An incarnation that was put down already counts as dead.
		if last = e.Peers.Renew(ctx, address); last == nil || errors.Is(last, peer.ErrPutDown) {
			return nil
		}
	}
	return last
}

// HasLeft reports whether this node was a member, was ordered to leave and is
// not a member any more. HasLeft returns true if any node of the cluster
// lists this node as left. If this node is merely absent from the members,
// HasLeft returns true only if leaving is set and the leader of the metadata
// shard answered, because other nodes may not yet know of a node that has
// just joined. If nobody answered, HasLeft returns false, see askDeparture.
func (e Entry) HasLeft(ctx context.Context, known []string, leaving bool) bool {
	e.Seeds = slices.Concat(e.Seeds, known)
	answers := e.own(e.probe(ctx))
	return e.isLeft(answers) || leaving && slices.ContainsFunc(answers, func(a answer) bool {
		return a.leads() && !slices.ContainsFunc(a.GetMembers(), func(m *peerv1.Member) bool { return m.GetNodeId() == string(e.Self.Node) })
	})
}

// askDeparture asks once whether this node was ordered to leave and has left. A
// nil error means that the answer is certain: either a node of the cluster
// lists this node as left, or the leader of the metadata shard answered and
// does not list it. Another node may not have heard of the departure yet.
func (e Entry) askDeparture(ctx context.Context, known []string) (left bool, err error) {
	e.Seeds = slices.Concat(e.Seeds, known)
	answers := e.own(e.probe(ctx))
	switch {
	case e.isLeft(answers):
		return true, nil
	case slices.ContainsFunc(answers, answer.leads):
		return false, nil
	case len(answers) == 0:
		return false, errors.New("no other node of the cluster answers")
	}
	return false, fmt.Errorf("of the nodes that answer, %d, none leads the metadata shard", len(answers))
}

// own returns the answers of nodes of this node's cluster.
func (e Entry) own(answers []answer) []answer {
	return slices.DeleteFunc(answers, func(a answer) bool { return a.GetClusterId() != e.Peers.Cluster() })
}

// isLeft reports whether one of the answers lists this node, with this disk, as
// a node that was ordered to leave and has left.
func (e Entry) isLeft(answers []answer) bool {
	return slices.ContainsFunc(answers, func(a answer) bool {
		return slices.ContainsFunc(a.GetLeft(), func(l *peerv1.LeftNode) bool {
			return l.GetNodeId() == string(e.Self.Node) && l.GetDiskId() != "" && l.GetDiskId() == e.Self.Disk
		})
	})
}

// clusters asks the seeds once which cluster they belong to. own reports
// whether a seed is in this node's cluster. others maps addresses of seeds in
// other clusters to those clusters.
func (e Entry) clusters(ctx context.Context) (own bool, others map[string]string) {
	others = map[string]string{}
	for _, a := range e.probe(ctx) {
		if a.GetClusterId() == e.Peers.Cluster() {
			own = true
		} else {
			others[a.address] = a.GetClusterId()
		}
	}
	return own, others
}

// final reports whether a retry cannot succeed.
func final(err error) bool {
	return errors.Is(err, errNodeInUse) || errors.Is(err, peer.ErrWrongCluster) || errors.Is(err, peer.ErrRefused) || errors.Is(err, peer.ErrFormat)
}

// answer is the answer of a seed that belongs to a cluster.
type answer struct {
	address string
	*peerv1.ProbeResponse
}

// leads reports whether the node that answered leads the metadata shard.
func (a answer) leads() bool { return a.GetNodeId() != "" && a.GetNodeId() == a.GetLeader() }

// probe asks all seeds concurrently and returns the answers of seeds that
// belong to a cluster, in the order of the seeds.
func (e Entry) probe(ctx context.Context) []answer {
	addresses := e.addresses(ctx)
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	found := make([]*peerv1.ProbeResponse, len(addresses))
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() {
			r, err := e.Peers.Probe(ctx, address)
			if err == nil && r.GetClusterId() != "" && r.GetNodeId() != string(e.Self.Node) {
				found[i] = r
			}
		})
	}
	asked.Wait()
	var out []answer
	for i, r := range found {
		if r != nil {
			out = append(out, answer{addresses[i], r})
		}
	}
	return out
}

// addresses resolves the seeds and omits this node's own addresses. A name that
// cannot be resolved within lookupTimeout is kept as an address, which will not
// answer.
func (e Entry) addresses(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, failed := e.Lookup.AllAddresses(ctx, e.Seeds)
	var out []string
	for i, seed := range e.Seeds {
		if failed[i] != nil {
			found[i] = []string{seed}
		}
		for _, a := range found[i] {
			if !e.isOwn(a) && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

// isOwn reports whether an address is one of this node's.
func (e Entry) isOwn(address string) bool {
	return address == e.Self.Address || address == e.Self.PeerAddress
}

// peersAt returns where other nodes reach a member.
func peersAt(m *peerv1.Member) string { return cmp.Or(m.GetPeerAddress(), m.GetAddress()) }

// ask asks for admission. It returns an error if no node could grant it.
func (e Entry) ask(ctx context.Context, answers []answer) (*Joined, error) {
	if len(answers) == 0 {
		return nil, errors.New("no seed that belongs to a cluster answers")
	}
	for _, a := range answers[1:] {
		if a.GetClusterId() != answers[0].GetClusterId() {
			return nil, fmt.Errorf("%w: seed %s belongs to cluster %s, seed %s to %s: set the seeds of one cluster",
				peer.ErrWrongCluster, answers[0].address, answers[0].GetClusterId(), a.address, a.GetClusterId())
		}
	}
	if err := e.checkName(ctx, answers); err != nil {
		return nil, err
	}
	// Other nodes may have recorded a later incarnation than the metadata,
	// from an earlier disk of this node. So choose an incarnation above all
	// recorded ones, unless e.runs is set, because then the latest may be
	// this process's own.
	known, first := e.newestStart(answers), uint64(0)
	if known > 0 && !e.runs {
		first = known + staledisk.MaxLeap + 1
	} else if known > e.Self.Incarnation {
		first = known + 1
	}
	if e.Incarnations != nil && first > e.Self.Incarnation && !e.runsElsewhere(ctx, answers) {
		e.Self.Incarnation = first
		if err := e.Incarnations.Raise(e.Self.Incarnation); err != nil {
			return nil, err
		}
	}
	if err := e.Peers.SetCluster(answers[0].GetClusterId()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	var last error
	for _, a := range answers {
		for _, address := range []string{a.GetLeaderAddress(), a.address} {
			if address == "" {
				continue
			}
			r, err := e.Peers.Join(ctx, address, &peerv1.JoinRequest{Member: memberToWire(e.Self)})
			if err == nil {
				return joinedFrom(r)
			}
			if last = err; final(err) || errors.Is(err, peer.ErrPutDown) {
				return nil, err
			}
		}
	}
	return nil, last
}

// newestStart returns the latest incarnation of this node that the cluster
// has seen. This includes incarnations that were put down, and those of a
// former member with this node's name.
func (e Entry) newestStart(answers []answer) (newest uint64) {
	for _, a := range answers {
		for _, m := range a.GetMembers() {
			if m.GetNodeId() == string(e.Self.Node) {
				newest = max(newest, m.GetIncarnation())
			}
		}
		for _, d := range a.GetDowned() {
			if d.GetNodeId() == string(e.Self.Node) {
				newest = max(newest, d.GetIncarnation())
			}
		}
		for _, l := range a.GetLeft() {
			if l.GetNodeId() == string(e.Self.Node) {
				newest = max(newest, l.GetIncarnation())
			}
		}
	}
	return newest
}

// runsElsewhere reports whether another process answers as this node at an
// address that the cluster knows. If the process is a member, it runs on a copy
// of this node's disk, and the process with the later incarnation is the
// member.
func (e Entry) runsElsewhere(ctx context.Context, answers []answer) bool {
	for _, a := range answers {
		for _, m := range a.GetMembers() {
			if m.GetNodeId() == string(e.Self.Node) && !e.isOwn(peersAt(m)) && runs(ctx, e.Peers, answers[0].GetClusterId(), peersAt(m), e.Self.Node, 0) {
				return true
			}
		}
	}
	return false
}

// checkName rejects a name under which another process runs. Joining under that
// name would declare the other process's replicas lost.
func (e Entry) checkName(ctx context.Context, answers []answer) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for _, a := range answers {
		for _, m := range a.GetMembers() {
			if m.GetNodeId() != string(e.Self.Node) || m.GetDiskId() == e.Self.Disk || e.isOwn(peersAt(m)) {
				continue // this process itself answers at its own address, perhaps after its incarnation was raised
			}
			r, err := e.Peers.Probe(ctx, peersAt(m))
			if err == nil && r.GetNodeId() == string(e.Self.Node) && r.GetIncarnation() != e.Self.Incarnation {
				return fmt.Errorf("%w: node %s of this cluster runs at %s; set a different node-id for this node", errNodeInUse, e.Self.Node, m.GetAddress())
			}
		}
	}
	return nil
}

func joinedFrom(r *peerv1.JoinResponse) (*Joined, error) {
	j := &Joined{
		Cluster: r.GetClusterId(), Shards: r.GetShardCount(), Format: r.GetFormat(), ClusterVersion: max(sharding.ClusterVersion(r.GetLevel()), sharding.Version1), Replica: sharding.ReplicaID(r.GetMetaReplica()),
		Nodes: map[sharding.ReplicaID]sharding.NodeID{}, Addresses: map[sharding.NodeID]string{},
	}
	for _, id := range r.GetMetaFirst() {
		j.FirstVoters = append(j.FirstVoters, sharding.ReplicaID(id))
	}
	for _, at := range r.GetMetaReplicas() {
		j.Nodes[sharding.ReplicaID(at.GetReplica())] = sharding.NodeID(at.GetNodeId())
		j.Addresses[sharding.NodeID(at.GetNodeId())] = at.GetAddress()
	}
	if j.Cluster == "" || j.Shards == 0 || j.Replica == 0 || len(j.FirstVoters) == 0 {
		return nil, fmt.Errorf("%w: the response to a join is incomplete", peer.ErrFormat)
	}
	return j, nil
}

func memberToWire(m meta.Member) *peerv1.Member {
	return &peerv1.Member{
		NodeId: string(m.Node), Address: m.Address, Incarnation: m.Incarnation, DiskId: m.Disk, Roles: m.Roles,
		Version: m.Version, Status: string(m.Status), Zone: m.Zone,
		MinLevel: uint32(m.Speaks.Min), MaxLevel: uint32(m.Speaks.Max), PeerAddress: m.PeerAddress,
	}
}

func memberFromWire(m *peerv1.Member) meta.Member {
	return meta.Member{
		Node: sharding.NodeID(m.GetNodeId()), Address: m.GetAddress(), PeerAddress: m.GetPeerAddress(), Incarnation: m.GetIncarnation(), Disk: m.GetDiskId(),
		Roles: m.GetRoles(), Version: m.GetVersion(), Zone: m.GetZone(),
		Speaks: sharding.VersionRange{Min: sharding.ClusterVersion(m.GetMinLevel()), Max: sharding.ClusterVersion(m.GetMaxLevel())},
	}
}
