package cluster

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding"
)

const (
	// keepReports is how long a node that does not report stays in the picture.
	keepReports = 5 * time.Second
	// keepPicture is how long a picture holds without news: nodes fall silent.
	keepPicture = time.Second
)

// painting is the picture of the cluster that nodes are told, painted anew when
// there is news and numbered anew when it has changed.
type painting struct {
	picture *peerv1.ReportResponse // shards and nodes; not modified
	number  uint64
	changes uint32
	at      time.Time
	stale   bool
}

// show adds the picture to an answer, or only its number where the node has it.
// It is called with the lock held.
func (l *leading) show(out *peerv1.ReportResponse, known uint64) {
	p, now := &l.painting, time.Now()
	if p.picture == nil || p.stale || now.Sub(p.at) >= keepPicture {
		fresh := l.paint(now)
		p.at, p.stale = now, false
		if p.picture == nil || !proto.Equal(fresh, p.picture) {
			p.changes++
			p.picture, p.number = fresh, uint64(l.term)<<32|uint64(p.changes)
		}
	}
	out.Picture = p.number
	if known != p.number {
		out.Shards, out.Nodes = p.picture.GetShards(), p.picture.GetNodes()
	}
}

// paint makes the picture of the cluster. It is called with the lock held.
func (l *leading) paint(now time.Time) *peerv1.ReportResponse {
	out := &peerv1.ReportResponse{}
	best := map[sharding.ShardID]*peerv1.ShardState{}
	for node, a := range l.latest {
		fresh := now.Sub(a.at) < keepReports
		out.Nodes = append(out.Nodes, &peerv1.NodeState{NodeId: string(node), Reachable: fresh && l.m.opts.Heard(node), Replicas: a.Replicas, Draining: a.Draining})
		for i := range a.Shards {
			r := &a.Shards[i]
			if old := best[r.Shard]; !r.Leader || !fresh || old != nil && old.Term >= uint64(r.Term) {
				continue
			}
			best[r.Shard] = &peerv1.ShardState{
				ShardId: uint32(r.Shard), Leader: string(node), Term: uint64(r.Term), Voters: numbers(r.Voters), Learners: numbers(r.Learners),
				Entities: a.sizes[r.Shard].entities, Bytes: a.sizes[r.Shard].bytes, Applied: r.Applied,
			}
		}
	}
	for _, s := range best {
		out.Shards = append(out.Shards, s)
	}
	slices.SortFunc(out.Shards, func(a, b *peerv1.ShardState) int { return cmp.Compare(a.GetShardId(), b.GetShardId()) })
	slices.SortFunc(out.Nodes, func(a, b *peerv1.NodeState) int { return cmp.Compare(a.GetNodeId(), b.GetNodeId()) })
	return out
}
