package virtualtime

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

// askTimeout bounds a request to one node.
const askTimeout = 2 * time.Second

// shards asks a node for the shards. It returns nil if the node does not
// answer.
func (w *world) shards(i int) []*clusterv1.Shard {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	shards, err := w.beside(i).Shards(ctx)
	if err != nil {
		return nil
	}
	return shards
}

// overview asks a node for the members. It returns nil if the node does not
// answer.
func (w *world) overview(i int) *clusterv1.GetClusterResponse {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	c, err := w.beside(i).Cluster(ctx)
	if err != nil {
		return nil
	}
	return c
}

// status returns a member's status according to a node.
func (w *world) status(of, seenBy int) string {
	for _, m := range w.overview(seenBy).GetMembers() {
		if m.GetNodeId() == string(id(of)) {
			return m.GetStatus()
		}
	}
	return ""
}

// leader waits until a node sees a running node as the leader of a shard, and
// returns that leader.
func (w *world) leader(shard uint32, seenBy int) (leads int) {
	w.t.Helper()
	w.until(fmt.Sprintf("%s sees a leader of shard %d", id(seenBy), shard), func() bool {
		for _, s := range w.shards(seenBy) {
			if s.GetShardId() == shard {
				leads = w.place(s.GetLeader())
			}
		}
		return w.nodes[leads] != nil
	})
	return leads
}

// place returns the number of the node with a name.
func (w *world) place(name string) int {
	for i := 1; i <= w.opts.nodes+spare; i++ {
		if name == string(id(i)) {
			return i
		}
	}
	return 0
}

// led reports whether, according to a node, every shard has a running leader.
func (w *world) led(seenBy int) bool {
	shards := w.shards(seenBy)
	for _, s := range shards {
		if w.nodes[w.place(s.GetLeader())] == nil {
			return false
		}
	}
	return len(shards) > int(w.opts.shards)
}

// voted reports whether, according to a node, every shard including the
// metadata shard has the given number of voters, and none of them is on a node
// that is gone.
func (w *world) voted(seenBy, voters int, gone ...int) bool {
	return w.haveVoted(w.shards(seenBy), voters, gone...)
}

func (w *world) haveVoted(shards []*clusterv1.Shard, voters int, gone ...int) bool {
	for _, s := range shards {
		if len(s.GetVoters()) != voters {
			return false
		}
		for _, i := range gone {
			if slices.Contains(s.GetVoters(), string(id(i))) {
				return false
			}
		}
	}
	return len(shards) > int(w.opts.shards)
}

// allVoted reports whether every running node sees the given number of voters
// of every shard in the same version of the metadata. Only then can the cluster
// survive the loss of a node. A replica uses the previous voters until it
// learns that a change is committed. If only the leader knows of the commit and
// is lost, the other replicas may need a voter that is gone.
func (w *world) allVoted(voters int) bool {
	var metadata uint64
	for i := range w.nodes {
		shards := w.shards(i)
		if !w.haveVoted(shards, voters) || metadata > 0 && shards[0].GetAppliedIndex() != metadata {
			return false
		}
		metadata = shards[0].GetAppliedIndex()
	}
	return true
}

// others returns the running nodes except the given one.
func (w *world) others(than int) (nodes []int) {
	for i := range w.nodes {
		if i != than {
			nodes = append(nodes, i)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// heldBy returns the ID of a counter whose shard a node leads.
func (w *world) heldBy(i int) string {
	w.t.Helper()
	for n := range 1000 {
		name := nameOf(n)
		if w.leader(client.ShardOf("counter", name, w.opts.shards), i) == i {
			return name
		}
	}
	w.t.Fatalf("%s leads nothing", id(i))
	return ""
}

// soon returns a context that ends at the time by which a node without a quorum
// must have rejected a call.
func (w *world) soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), refusedSoon)
	w.ends = append(w.ends, cancel)
	return ctx
}
