package entityapi

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// Load reports the load of this node.
type Load interface {
	// Hot returns the hottest entities, in any order. If there are limit
	// entities or more, it returns at least limit.
	Hot(ctx context.Context, limit int) ([]hotEntity, error)
}

// hotEntity is an entity that receives many requests.
type hotEntity struct {
	Entity               sharding.EntityID
	Shard                sharding.ShardID
	Node                 sharding.NodeID
	Commands, Over, Fuel float64 // Commands, their possible overestimate, and fuel, all per second
	FuelShare            float64 // share of the entity in its node's fuel
}

// defaultHot is the number of entities if the caller sets no limit.
const defaultHot = 20

// ListHotEntities collects the hot entities of every node that is up.
func (s *handler) ListHotEntities(ctx context.Context, r *connect.Request[entityv1.ListHotEntitiesRequest]) (*connect.Response[entityv1.ListHotEntitiesResponse], error) {
	if s.Load == nil {
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("this node does not count the requests of its entities"))
	}
	limit := int(r.Msg.GetLimit())
	if limit == 0 {
		limit = defaultHot
	}
	local, err := s.Load.Hot(ctx, limit)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	out := &entityv1.ListHotEntitiesResponse{}
	for _, e := range local {
		out.Entities = append(out.Entities, &entityv1.ListHotEntitiesResponse_Entity{
			EntityType: e.Entity.Type, EntityId: e.Entity.ID, ShardId: uint32(e.Shard), NodeId: string(e.Node),
			CommandsPerSecond: e.Commands, OverestimatePerSecond: e.Over, FuelPerSecond: e.Fuel, FuelShare: e.FuelShare,
		})
	}
	if !leaderproxy.FromPeer(ctx) && !s.Proxy.Alone() {
		if err := s.hotRemote(ctx, limit, out); err != nil {
			return nil, status.Public(s.Log, err)
		}
	}
	slices.SortFunc(out.Entities, func(a, b *entityv1.ListHotEntitiesResponse_Entity) int {
		return cmp.Or(cmp.Compare(b.GetCommandsPerSecond(), a.GetCommandsPerSecond()),
			cmp.Compare(a.GetEntityType(), b.GetEntityType()), cmp.Compare(a.GetEntityId(), b.GetEntityId()))
	})
	out.Entities = out.Entities[:min(limit, len(out.Entities))]
	return connect.NewResponse(out), nil
}

// hotRemote adds the hot entities of the other nodes.
func (s *handler) hotRemote(ctx context.Context, limit int, out *entityv1.ListHotEntitiesResponse) error {
	o, err := s.View.Overview(ctx)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, m := range o.Members {
		if m.ID == s.Self {
			continue
		}
		all.Go(func() {
			client, err := s.Proxy.Client(m.ID)
			var res *connect.Response[entityv1.ListHotEntitiesResponse]
			if err == nil {
				res, err = client.ListHotEntities(ctx, connect.NewRequest(&entityv1.ListHotEntitiesRequest{Limit: uint32(limit)}))
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out.MissingNodes = append(out.MissingNodes, string(m.ID))
				return
			}
			out.Entities = append(out.Entities, res.Msg.GetEntities()...)
		})
	}
	all.Wait()
	slices.Sort(out.MissingNodes)
	return nil
}
