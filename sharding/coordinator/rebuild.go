package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Remains has the records that are left of a cluster whose metadata shard is
// damaged beyond repair. All nodes are stopped.
type Remains struct {
	// Cluster is the identity stored on every node.
	Cluster meta.Cluster
	// Metadata is the latest readable copy of the metadata, nil if there is
	// none. Without a copy, modules, bindings and settings are lost.
	Metadata []meta.KV
	Nodes    []NodeRemains
	// BootstrapNode is the node on which the new metadata shard starts.
	BootstrapNode sharding.NodeID
}

// NodeRemains has the records that one node has stored.
type NodeRemains struct {
	Cluster        string                  // cluster id
	ClusterVersion sharding.ClusterVersion // version of its data directory, 0 if written by a release without cluster versions
	Shards         uint32
	Member         meta.Member // its status is ignored
	Replicas       []ReplicaRemains
	// MaxRemovedReplica is the highest id of a replica that was removed from
	// the node, 0 if none.
	MaxRemovedReplica sharding.ReplicaID
	// Revision is the highest binding revision that any shard of the node has
	// run under. Executors reject older bindings.
	Revision uint64
}

// ReplicaRemains has the records of a replica about itself.
type ReplicaRemains struct {
	Shard   sharding.ShardID
	Replica sharding.ReplicaID
	Term    sharding.Term
	Applied uint64
	// The membership at index Applied.
	Voters, Learners, Outgoing []sharding.ReplicaID
	// First are the first voters of the group; empty if the replica no longer
	// knows them.
	First []sharding.ReplicaID
}

// Errors of Rebuild.
var (
	// ErrInconsistent: the records contradict each other or belong to different
	// clusters. Any result could be wrong.
	ErrInconsistent = errors.New("coordinator: the records contradict each other")
	// ErrIncomplete: required records are missing. Inspect more nodes.
	ErrIncomplete = errors.New("coordinator: records are missing")
)

// replicaIDGap is left unused above the highest replica id found, because a
// membership change that no replica has applied yet may use a higher id.
const replicaIDGap = 1 << 20

// Rebuild reconstructs the metadata from the records of the nodes. The new
// metadata shard starts on the bootstrap node with a single replica under a new
// id. Every shard keeps the replicas that were found and that its most advanced
// replica knows as members. The other replicas leave their groups once the
// cluster runs. Rebuild fails if a majority of a shard's voters was not found
// or if records contradict each other. The other nodes join again.
func Rebuild(r Remains) (*meta.State, error) {
	base := meta.New()
	if r.Metadata != nil {
		if err := base.Load(0, r.Metadata); err != nil {
			return nil, err
		}
	}
	b := rebuild{remains: r, base: base.View(), found: map[sharding.ShardID][]foundReplica{}, owner: map[sharding.ReplicaID]sharding.ShardID{}}
	if err := b.gather(); err != nil {
		return nil, err
	}
	var placements []meta.Placement
	for s := sharding.ShardID(1); uint32(s) <= r.Cluster.Shards; s++ {
		p, placed, err := b.shard(s)
		if err != nil {
			return nil, err
		}
		if placed {
			placements = append(placements, p)
		}
	}
	next := max(b.highest, b.base.NextReplica()) + replicaIDGap
	placements = append(placements, meta.Placement{
		Shard: sharding.MetaShard, First: []sharding.ReplicaID{next},
		Replicas: []meta.Replica{{ID: next, Node: r.BootstrapNode, State: meta.ReplicaVoter}},
	})
	return meta.Rebuild(base, r.Cluster, next+1, b.revision, b.clusterVersion(), b.members(), placements)
}

// rebuild collects the records by shard.
type rebuild struct {
	remains Remains
	base    *meta.View
	found   map[sharding.ShardID][]foundReplica
	owner   map[sharding.ReplicaID]sharding.ShardID
	highest sharding.ReplicaID
	// revision is the highest binding revision that any shard has run under.
	revision uint64
}

// foundReplica is a replica with its node.
type foundReplica struct {
	ReplicaRemains
	node sharding.NodeID
}

func (b *rebuild) gather() error {
	nodes := map[sharding.NodeID]bool{}
	at := map[sharding.ReplicaID]bool{}
	for _, n := range b.remains.Nodes {
		switch {
		case n.Cluster != b.remains.Cluster.ID || n.Shards != b.remains.Cluster.Shards:
			return fmt.Errorf("%w: node %s belongs to cluster %s with %d shards", ErrInconsistent, n.Member.Node, n.Cluster, n.Shards)
		case nodes[n.Member.Node]:
			return fmt.Errorf("%w: node %s is listed twice", ErrInconsistent, n.Member.Node)
		}
		nodes[n.Member.Node] = true
		b.highest, b.revision = max(b.highest, n.MaxRemovedReplica), max(b.revision, n.Revision)
		holds := map[sharding.ShardID]bool{}
		for _, rec := range n.Replicas {
			if holds[rec.Shard] || at[rec.Replica] || rec.Replica == 0 {
				return fmt.Errorf("%w: replica %d of shard %d on node %s is listed twice", ErrInconsistent, rec.Replica, rec.Shard, n.Member.Node)
			}
			holds[rec.Shard], at[rec.Replica] = true, true
			for _, id := range slices.Concat(rec.Voters, rec.Learners, rec.Outgoing, rec.First, []sharding.ReplicaID{rec.Replica}) {
				if shard, known := b.owner[id]; known && shard != rec.Shard {
					return fmt.Errorf("%w: replica %d belongs to shard %d and to shard %d", ErrInconsistent, id, shard, rec.Shard)
				}
				b.owner[id] = rec.Shard
				b.highest = max(b.highest, id)
			}
			b.found[rec.Shard] = append(b.found[rec.Shard], foundReplica{rec, n.Member.Node})
		}
	}
	if !nodes[b.remains.BootstrapNode] {
		return fmt.Errorf("%w: no records of the bootstrap node %s were given", ErrIncomplete, b.remains.BootstrapNode)
	}
	return nil
}

// shard reconstructs the placement of a shard from its replicas.
func (b *rebuild) shard(s sharding.ShardID) (p meta.Placement, placed bool, err error) {
	replicas := b.found[s]
	before, known := b.base.Placement(s)
	if len(replicas) == 0 {
		if known || b.remains.Metadata == nil && len(b.found) > 0 {
			return p, false, fmt.Errorf("%w: no replica of shard %d was found", ErrIncomplete, s)
		}
		return p, false, nil
	}
	last := slices.MaxFunc(replicas, func(a, o foundReplica) int {
		return cmp.Or(cmp.Compare(a.Applied, o.Applied), cmp.Compare(a.Term, o.Term))
	})
	p = meta.Placement{Shard: s, First: before.First}
	have := 0
	for _, f := range replicas {
		if f.Applied == last.Applied && !sameMembers(f.ReplicaRemains, last.ReplicaRemains) {
			return p, false, fmt.Errorf("%w: replicas %d and %d of shard %d recorded different memberships at index %d", ErrInconsistent, f.Replica, last.Replica, s, f.Applied)
		}
		if len(f.First) > 0 {
			if len(p.First) > 0 && !slices.Equal(p.First, f.First) {
				return p, false, fmt.Errorf("%w: replicas of shard %d recorded different initial voters: %v and %v", ErrInconsistent, s, p.First, f.First)
			}
			p.First = f.First
		}
		switch {
		case slices.Contains(last.Voters, f.Replica):
			have++
			p.Replicas = append(p.Replicas, meta.Replica{ID: f.Replica, Node: f.node, State: meta.ReplicaVoter})
		case slices.Contains(last.Learners, f.Replica):
			p.Replicas = append(p.Replicas, meta.Replica{ID: f.Replica, Node: f.node, State: meta.ReplicaLearner})
		case slices.Contains(last.Outgoing, f.Replica):
			p.Replicas = append(p.Replicas, meta.Replica{ID: f.Replica, Node: f.node, State: meta.ReplicaLeaving})
		}
	}
	switch {
	case len(p.First) == 0:
		return p, false, fmt.Errorf("%w: no replica recorded the initial voters of shard %d", ErrIncomplete, s)
	case have <= len(last.Voters)/2 || !b.hasMajority(replicas, last.Outgoing):
		return p, false, fmt.Errorf("%w: a majority of the voters %v and %v of shard %d was not found", ErrIncomplete, last.Voters, last.Outgoing, s)
	}
	slices.SortFunc(p.Replicas, func(a, o meta.Replica) int { return cmp.Compare(a.ID, o.ID) })
	return p, true, nil
}

// hasMajority reports whether a majority of the ids was found. It is true if
// ids is empty.
func (b *rebuild) hasMajority(replicas []foundReplica, ids []sharding.ReplicaID) bool {
	n := 0
	for _, f := range replicas {
		if slices.Contains(ids, f.Replica) {
			n++
		}
	}
	return len(ids) == 0 || n > len(ids)/2
}

func sameMembers(a, o ReplicaRemains) bool {
	same := func(x, y []sharding.ReplicaID) bool {
		return slices.Equal(slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y)))
	}
	return same(a.Voters, o.Voters) && same(a.Learners, o.Learners) && same(a.Outgoing, o.Outgoing)
}

// clusterVersion returns a version that the cluster has had. The data directory
// of each member is upgraded before the cluster, so the lowest version of all
// directories is such a version.
func (b *rebuild) clusterVersion() sharding.ClusterVersion {
	lowest := sharding.MaxVersion
	for _, n := range b.remains.Nodes {
		lowest = min(lowest, max(n.ClusterVersion, sharding.Version1))
	}
	return lowest
}

func (b *rebuild) members() []meta.Member {
	var out []meta.Member
	for _, n := range b.remains.Nodes {
		m := n.Member
		m.Status, m.Downed = meta.StatusUp, false
		out = append(out, m)
	}
	for _, m := range b.base.Members() {
		if !slices.ContainsFunc(out, func(o meta.Member) bool { return o.Node == m.Node }) {
			m.Status = meta.StatusDown
			out = append(out, m)
		}
	}
	return out
}
