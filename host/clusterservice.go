package host

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// clusterService describes the cluster: members and placement from the
// metadata, shards with a replica here as this node sees them, all others as
// the coordinator last told.
type clusterService struct{ n *Node }

func (s clusterService) Overview(ctx context.Context) (rpc.Overview, error) {
	n := s.n
	o := rpc.Overview{ShardCount: n.id.Shards, Quorum: n.leaders.Quorum(sharding.MetaShard)}
	if leader, known := n.metadata.Leader(); known {
		o.Coordinator = leader
	} else {
		o.Quorum = false
	}
	leaders, replicas := map[sharding.NodeID]uint32{}, map[sharding.NodeID]uint32{}
	shards, err := s.Shards(ctx)
	if err != nil {
		return o, err
	}
	view := n.metadata.View()
	for _, sh := range shards {
		leaders[sh.Leader]++
		p, _ := view.Placement(sh.ID)
		for _, r := range p.Replicas {
			if !r.Lost {
				replicas[r.Node]++
			}
		}
	}
	for _, b := range view.Bindings() {
		o.ShardKeys = append(o.ShardKeys, rpc.ShardKey{EntityType: b.EntityType, Rule: b.ShardKey})
	}
	for _, m := range n.listed(view) {
		member := rpc.Member{
			ID: m.Node, Address: m.Address, Status: string(m.Status), Roles: m.Roles, Version: m.Version, Zone: m.Zone, Draining: m.Draining,
			Reachable: m.Node == n.id.Node || m.Status == statusWeaklyUp || n.peers.Heard(m.Node), Leaders: leaders[m.Node], Replicas: replicas[m.Node],
		}
		if m.Node == n.id.Node {
			member.Address, member.Version = n.advertised(), telemetry.Version()
		}
		if len(member.Roles) == 0 {
			member.Roles = []string{"host"}
		}
		o.Members = append(o.Members, member)
	}
	return o, nil
}

// statusWeaklyUp is shown of a node that asks for admission and cannot be given
// it now. It is no status of the metadata, which does not know of the node.
const statusWeaklyUp meta.MemberStatus = "weakly_up"

// listed are the nodes to show, by name: the members, without this node where it
// has left and cannot hear that, and those that wait to become some.
func (n *Node) listed(view *meta.View) []meta.Member {
	out := slices.Clone(view.Members())
	if n.member.Left() {
		out = slices.DeleteFunc(out, func(m meta.Member) bool { return m.Node == n.id.Node })
	}
	for _, m := range n.control.Waiting(view) {
		m.Status = statusWeaklyUp
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b meta.Member) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

func (s clusterService) Shards(context.Context) ([]rpc.Shard, error) {
	n, view := s.n, s.n.metadata.View()
	picture := n.member.Picture()
	statuses, err := n.raft.loop.Load().Statuses()
	if err != nil {
		return nil, err
	}
	here := make(map[sharding.ShardID]cluster.ShardState, len(statuses))
	for _, st := range statuses {
		applied, _ := n.machine.Applied(st.Shard)
		node, _ := view.ReplicaNode(st.Shard, st.Leader)
		here[st.Shard] = cluster.ShardState{
			Leader: node, Term: st.Term, Voters: st.Voters, Learners: st.Learners,
			Entities: n.machine.Entities(st.Shard), Applied: applied, Bytes: n.machine.Bytes(st.Shard),
		}
		if st.Shard == sharding.MetaShard { // it has no records
			s := here[st.Shard]
			s.Bytes = uint64(st.Bytes)
			here[st.Shard] = s
		}
	}
	out := make([]rpc.Shard, 0, n.id.Shards+1)
	for id := sharding.MetaShard; id <= sharding.ShardID(n.id.Shards); id++ {
		state, ok := here[id]
		if !ok {
			state = picture.Shards[id]
		}
		sh := rpc.Shard{
			ID: id, Leader: state.Leader, Term: state.Term, Entities: state.Entities, Applied: state.Applied, Bytes: state.Bytes,
			Voters: nodesOf(view, id, state.Voters), Learners: nodesOf(view, id, state.Learners),
		}
		out = append(out, sh)
	}
	return out, nil
}

// nodesOf names the nodes of a shard's replicas, without those whose disk is
// lost: raft counts these until they are replaced, and no node has them.
func nodesOf(view *meta.View, shard sharding.ShardID, ids []sharding.ReplicaID) []sharding.NodeID {
	placement, _ := view.Placement(shard)
	var out []sharding.NodeID
	for _, id := range ids {
		if r, ok := placement.Replica(id); ok && !r.Lost {
			out = append(out, r.Node)
		}
	}
	return out
}

// orderService gives orders to the coordinator, here or on the node where it
// is.
type orderService struct{ n *Node }

func (s orderService) MoveShard(ctx context.Context, shard sharding.ShardID, to sharding.NodeID) error {
	if uint32(shard) > s.n.id.Shards {
		return rpc.ErrUnknownShard
	}
	if err := s.known(ctx, to); err != nil {
		return err
	}
	_, err := s.give(ctx, coordinator.Order{Kind: coordinator.OrderMove, Shard: shard, Node: to},
		func(ctx context.Context, c clusterv1connect.ClusterServiceClient) error {
			_, err := c.MoveShard(ctx, connect.NewRequest(&clusterv1.MoveShardRequest{ShardId: uint32(shard), ToNode: string(to)}))
			return err
		})
	return err
}

func (s orderService) Drain(ctx context.Context, node sharding.NodeID) error {
	return s.aboutNode(ctx, coordinator.OrderDrain, node, func(ctx context.Context, c clusterv1connect.ClusterServiceClient) error {
		_, err := c.Drain(ctx, connect.NewRequest(&clusterv1.DrainRequest{NodeId: string(node)}))
		return err
	})
}

func (s orderService) Resume(ctx context.Context, node sharding.NodeID) error {
	return s.aboutNode(ctx, coordinator.OrderResume, node, func(ctx context.Context, c clusterv1connect.ClusterServiceClient) error {
		_, err := c.Resume(ctx, connect.NewRequest(&clusterv1.ResumeRequest{NodeId: string(node)}))
		return err
	})
}

func (s orderService) Leave(ctx context.Context, node sharding.NodeID) error {
	return s.aboutNode(ctx, coordinator.OrderLeave, node, func(ctx context.Context, c clusterv1connect.ClusterServiceClient) error {
		_, err := c.Leave(ctx, connect.NewRequest(&clusterv1.LeaveRequest{NodeId: string(node)}))
		return err
	})
}

func (s orderService) Down(ctx context.Context, node sharding.NodeID) error {
	return s.aboutNode(ctx, coordinator.OrderDown, node, func(ctx context.Context, c clusterv1connect.ClusterServiceClient) error {
		_, err := c.Down(ctx, connect.NewRequest(&clusterv1.DownRequest{NodeId: string(node)}))
		return err
	})
}

// aboutNode gives an order that concerns one member.
func (s orderService) aboutNode(ctx context.Context, kind coordinator.OrderKind, node sharding.NodeID, elsewhere func(context.Context, clusterv1connect.ClusterServiceClient) error) error {
	if err := s.known(ctx, node); err != nil {
		return err
	}
	_, err := s.give(ctx, coordinator.Order{Kind: kind, Node: node}, elsewhere)
	return err
}

func (s orderService) Rebalance(ctx context.Context) (moves uint32, err error) {
	remaining, err := s.give(ctx, coordinator.Order{Kind: coordinator.OrderRebalance},
		func(ctx context.Context, c clusterv1connect.ClusterServiceClient) error {
			res, err := c.Rebalance(ctx, connect.NewRequest(&clusterv1.RebalanceRequest{}))
			if err == nil {
				moves = res.Msg.GetMoves()
			}
			return err
		})
	return moves + uint32(remaining), err
}

func (s orderService) known(ctx context.Context, node sharding.NodeID) error {
	if _, ok := s.n.metadata.View().Member(node); ok {
		return nil
	}
	if s.n.unknown.confirm(ctx, s.n.metadata) != nil {
		return rpc.ErrNotReady
	}
	if _, ok := s.n.metadata.View().Member(node); !ok {
		return rpc.ErrUnknownNode
	}
	return nil
}

// give gives an order here, or calls the coordinator's node with it.
func (s orderService) give(ctx context.Context, o coordinator.Order, elsewhere func(context.Context, clusterv1connect.ClusterServiceClient) error) (remaining int, err error) {
	remaining, err = s.n.member.Order(ctx, o)
	var away *sharding.NotLeaderError
	switch {
	case errors.Is(err, coordinator.ErrRefused):
		return 0, &rpc.RefusedError{Reason: err.Error()}
	case !errors.As(err, &away) || away.Leader == "" || away.Leader == s.n.id.Node || rpc.Hopped(ctx):
		return remaining, err
	}
	client, base, err := s.n.peers.Client(away.Leader)
	if err != nil {
		return 0, away
	}
	return 0, elsewhere(ctx, clusterv1connect.NewClusterServiceClient(client, base+strings.TrimSuffix(rpc.HopPath, "/")))
}

// settingService is the replicated map.
type settingService struct{ n *Node }

func (s settingService) view() (*meta.View, error) {
	if !s.n.caughtUp.Load() {
		return nil, rpc.ErrNotReady
	}
	return s.n.metadata.View(), nil
}

func (s settingService) Get(ctx context.Context, key string) (rpc.Setting, error) {
	view, err := s.view()
	if err != nil {
		return rpc.Setting{}, err
	}
	v, ok := view.Setting(key)
	if !ok {
		if s.n.unknown.confirm(ctx, s.n.metadata) != nil {
			return rpc.Setting{}, rpc.ErrNotReady
		}
		if v, ok = s.n.metadata.View().Setting(key); !ok {
			return rpc.Setting{}, rpc.ErrUnknownSetting
		}
	}
	return rpc.Setting{Key: v.Key, Value: string(v.Value), Revision: v.Revision}, nil
}

func (s settingService) List(prefix string) ([]rpc.Setting, uint64, error) {
	view, err := s.view()
	if err != nil {
		return nil, 0, err
	}
	var out []rpc.Setting
	for _, key := range view.SettingKeys() {
		if v, ok := view.Setting(key); ok && len(key) >= len(prefix) && key[:len(prefix)] == prefix {
			out = append(out, rpc.Setting{Key: key, Value: string(v.Value), Revision: v.Revision})
		}
	}
	return out, view.SettingRevision(), nil
}

func (s settingService) Put(ctx context.Context, key, value string) (uint64, error) {
	if err := checkSetting(key, value); err != nil {
		return 0, &rpc.InvalidSettingError{Reason: err.Error()}
	}
	command := meta.PutSetting(key, []byte(value))
	if value == "" {
		command = meta.DeleteSetting(key)
	}
	res, err := s.n.metadata.Do(ctx, command)
	if errors.Is(err, meta.ErrInvalid) {
		return 0, &rpc.InvalidSettingError{Reason: err.Error()}
	}
	if err != nil {
		return 0, err
	}
	// It is applied where it was decided; a caller may read it here next.
	return res.Revision, s.n.metadata.CatchUp(ctx)
}

func (s settingService) Changed() <-chan struct{} { return s.n.metadata.Changed() }
