package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Bounds of Reach.
const (
	// ReachTime bounds the whole call.
	ReachTime = 10 * time.Second
	// reachOneTime bounds the call of one node.
	reachOneTime = 5 * time.Second
	// reachAtOnce bounds the nodes that are called concurrently.
	reachAtOnce = 64
	// maxReason bounds the error text for a node, in characters.
	maxReason = 200
)

// Reach implements peer.Control. It calls only the addresses of members.
func (c *Control) Reach(ctx context.Context, nodes []*peerv1.StartAddress) ([]*peerv1.Unreached, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ReachTime)
	defer cancel()
	view, faults := o.Metadata.View(), make([]error, len(nodes))
	slots := make(chan struct{}, reachAtOnce)
	var asked sync.WaitGroup
	for i, n := range nodes {
		if n.GetNodeId() == string(o.Self) {
			continue
		}
		asked.Go(func() {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
				faults[i] = o.reach(ctx, view, n)
			case <-ctx.Done():
				faults[i] = ctx.Err()
			}
		})
	}
	asked.Wait()
	var out []*peerv1.Unreached
	for i, err := range faults {
		if err != nil {
			out = append(out, &peerv1.Unreached{NodeId: nodes[i].GetNodeId(), Reason: strings.ToValidUTF8(fmt.Sprintf("%.*s", maxReason, err), "?")})
		}
	}
	return out, nil
}

// reach returns why the given incarnation of a node does not answer at an
// address that serves only nodes, or nil.
func (o *ControlOptions) reach(ctx context.Context, view *meta.View, n *peerv1.StartAddress) error {
	if _, member := view.Member(sharding.NodeID(n.GetNodeId())); !member {
		return fmt.Errorf("%w: node %s does not know the member", peer.ErrUnavailable, o.Self)
	}
	ctx, cancel := context.WithTimeout(ctx, reachOneTime)
	defer cancel()
	r, err := o.Peers.ProbeAlone(ctx, n.GetAddress())
	if err != nil {
		return err
	}
	cluster, _ := view.Cluster()
	switch {
	case r.GetClusterId() != cluster.ID:
		return fmt.Errorf("%w: a node of cluster %.64q answered", peer.ErrWrongCluster, r.GetClusterId())
	case r.GetNodeId() != n.GetNodeId():
		return fmt.Errorf("%w: node %.64s answered", peer.ErrWrongNode, r.GetNodeId())
	case r.GetIncarnation() != n.GetIncarnation():
		return fmt.Errorf("%w: start %d of the node answered instead of start %d", peer.ErrWrongNode, r.GetIncarnation(), n.GetIncarnation())
	}
	return nil
}
