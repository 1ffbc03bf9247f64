package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Bounds of the search for a cluster.
const (
	probeTimeout = time.Second
	joinTimeout  = 5 * time.Second
	minSearch    = 100 * time.Millisecond
	maxSearch    = 2 * time.Second
	saySearching = 10 * time.Second
)

// ErrNodeInUse: another running node has this one's name. Give this one
// another, or stop that one.
var ErrNodeInUse = errors.New("the node id is in use")

// Entry is a node's way into a cluster.
type Entry struct {
	Peers *peer.Peers
	Self  meta.Member // as it is to be admitted
	Seeds []string    // host:port; a name may have several addresses
	// Bootstrap founds a cluster when no seed answers with one.
	Bootstrap bool
	// Resolve returns the addresses of a name; net.DefaultResolver's when nil.
	Resolve func(ctx context.Context, name string) ([]string, error)
	// Raise makes this start's incarnation a higher one, durably. It is called
	// where the cluster has seen a later start of the node than its clock gives:
	// one on another disk, with another clock. May be nil.
	Raise  func(incarnation uint64) error
	Logger *slog.Logger
}

// Joined is what a node needs to begin as a member.
type Joined struct {
	Cluster string
	Shards  uint32
	Format  uint32
	// Replica of the metadata shard is to be created with First.
	Replica sharding.ReplicaID
	First   []sharding.ReplicaID
	// Nodes of the metadata shard's replicas and where they listen.
	Nodes     map[sharding.ReplicaID]sharding.NodeID
	Addresses map[sharding.NodeID]string
}

// Enter asks the seeds until one of them admits the node, or ctx ends. It
// returns nil without an error when the node is to found a cluster itself.
func (e Entry) Enter(ctx context.Context) (*Joined, error) {
	pause, said := minSearch, time.Time{}
	for {
		answers := e.probe(ctx)
		if len(answers) == 0 && e.Bootstrap {
			return nil, nil
		}
		joined, err := e.ask(ctx, answers)
		if joined != nil || final(err) {
			return joined, err
		}
		if time.Since(said) >= saySearching {
			said = time.Now()
			e.Logger.Info("waiting for a seed that admits this node", "seeds", e.Seeds, "answered", len(answers), "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("join a cluster: %w", errors.Join(ctx.Err(), err))
		}
		pause = min(2*pause, maxSearch)
	}
}

// Again asks once more for admission, as a node that may have been taken for
// dead does: known are addresses of nodes beside the seeds. It fails while
// nobody could give it.
func (e Entry) Again(ctx context.Context, known []string) (*Joined, error) {
	e.Seeds = slices.Concat(e.Seeds, known)
	return e.ask(ctx, e.probe(ctx))
}

// Removed says whether a node that was a member is none any more, by the word of
// the leader of the metadata shard alone: others may not have heard of it yet.
// It is false while that one does not answer.
func (e Entry) Removed(ctx context.Context, known []string) bool {
	e.Seeds = slices.Concat(e.Seeds, known)
	for _, a := range e.probe(ctx) {
		if a.GetLeader() == a.GetNodeId() && !slices.ContainsFunc(a.GetMembers(), func(m *peerv1.Member) bool { return m.GetNodeId() == string(e.Self.Node) }) {
			return true
		}
	}
	return false
}

// final says whether another attempt is in vain.
func final(err error) bool {
	return errors.Is(err, ErrNodeInUse) || errors.Is(err, peer.ErrWrongCluster) || errors.Is(err, peer.ErrRefused) || errors.Is(err, peer.ErrFormat)
}

// answer is a seed that belongs to a cluster.
type answer struct {
	address string
	*peerv1.ProbeResponse
}

// probe asks all seeds at once and returns those that belong to a cluster, in
// the order of the seeds.
func (e Entry) probe(ctx context.Context) []answer {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	addresses := e.addresses(ctx)
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

// addresses resolves the seeds; this node's own address is no seed.
func (e Entry) addresses(ctx context.Context) []string {
	resolve := e.Resolve
	if resolve == nil {
		resolve = net.DefaultResolver.LookupHost
	}
	var out []string
	for _, seed := range e.Seeds {
		host, port, err := net.SplitHostPort(seed)
		if err != nil {
			continue // the configuration was checked
		}
		hosts := []string{host}
		if net.ParseIP(host) == nil {
			if found, err := resolve(ctx, host); err == nil {
				hosts = found
			}
		}
		for _, h := range hosts {
			if a := net.JoinHostPort(h, port); a != e.Self.Address && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

// ask asks for admission. The result is nil while nobody could give it.
func (e Entry) ask(ctx context.Context, answers []answer) (*Joined, error) {
	if len(answers) == 0 {
		return nil, errors.New("no seed that belongs to a cluster answers")
	}
	for _, a := range answers[1:] {
		if a.GetClusterId() != answers[0].GetClusterId() {
			return nil, fmt.Errorf("%w: seed %s is of cluster %s, seed %s of %s: name the seeds of one cluster",
				peer.ErrWrongCluster, answers[0].address, answers[0].GetClusterId(), a.address, a.GetClusterId())
		}
	}
	if err := e.checkName(ctx, answers); err != nil {
		return nil, err
	}
	if known := e.known(answers); e.Raise != nil && known >= e.Self.Incarnation {
		e.Self.Incarnation = known + 1
		if err := e.Raise(e.Self.Incarnation); err != nil {
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
			if last = err; final(err) {
				return nil, err
			}
		}
	}
	return nil, last
}

// known is the newest start of this node that the cluster has seen.
func (e Entry) known(answers []answer) (newest uint64) {
	for _, a := range answers {
		for _, m := range a.GetMembers() {
			if m.GetNodeId() == string(e.Self.Node) {
				newest = max(newest, m.GetIncarnation())
			}
		}
	}
	return newest
}

// checkName refuses a name under which another process runs: to join under it
// would take the other's replicas for lost.
func (e Entry) checkName(ctx context.Context, answers []answer) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for _, a := range answers {
		for _, m := range a.GetMembers() {
			if m.GetNodeId() != string(e.Self.Node) || m.GetDiskId() == e.Self.Disk {
				continue
			}
			r, err := e.Peers.Probe(ctx, m.GetAddress())
			if err == nil && r.GetNodeId() == string(e.Self.Node) && r.GetIncarnation() != e.Self.Incarnation {
				return fmt.Errorf("%w: node %s of this cluster runs at %s; give this node another node-id", ErrNodeInUse, e.Self.Node, m.GetAddress())
			}
		}
	}
	return nil
}

func joinedFrom(r *peerv1.JoinResponse) (*Joined, error) {
	j := &Joined{
		Cluster: r.GetClusterId(), Shards: r.GetShardCount(), Format: r.GetFormat(), Replica: sharding.ReplicaID(r.GetMetaReplica()),
		Nodes: map[sharding.ReplicaID]sharding.NodeID{}, Addresses: map[sharding.NodeID]string{},
	}
	for _, id := range r.GetMetaFirst() {
		j.First = append(j.First, sharding.ReplicaID(id))
	}
	for _, at := range r.GetMetaReplicas() {
		j.Nodes[sharding.ReplicaID(at.GetReplica())] = sharding.NodeID(at.GetNodeId())
		j.Addresses[sharding.NodeID(at.GetNodeId())] = at.GetAddress()
	}
	if j.Cluster == "" || j.Shards == 0 || j.Replica == 0 || len(j.First) == 0 {
		return nil, fmt.Errorf("%w: the answer to a join is incomplete", peer.ErrFormat)
	}
	return j, nil
}

func memberToWire(m meta.Member) *peerv1.Member {
	return &peerv1.Member{
		NodeId: string(m.Node), Address: m.Address, Incarnation: m.Incarnation, DiskId: m.Disk, Roles: m.Roles,
		Version: m.Version, Status: string(m.Status), Zone: m.Zone,
	}
}

func memberFromWire(m *peerv1.Member) meta.Member {
	return meta.Member{
		Node: sharding.NodeID(m.GetNodeId()), Address: m.GetAddress(), Incarnation: m.GetIncarnation(), Disk: m.GetDiskId(),
		Roles: m.GetRoles(), Version: m.GetVersion(), Zone: m.GetZone(),
	}
}
