package rpc

import (
	"context"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/rpc/status"
)

const (
	// mostCleared bounds the entities that one call clears.
	mostCleared = 10_000
	// clearPage is how many are looked for at a time.
	clearPage = 500
)

// ClearTypeFaults lets the parked entities of a type run again. Each is cleared
// where its shard is led; after an error those before it are.
func (s *entityService) ClearTypeFaults(ctx context.Context, r *connect.Request[entityv1.ClearTypeFaultsRequest]) (*connect.Response[entityv1.ClearTypeFaultsResponse], error) {
	if s.deps.States == nil {
		return s.UnimplementedEntityServiceHandler.ClearTypeFaults(ctx, r)
	}
	t, out := r.Msg.GetEntityType(), &entityv1.ClearTypeFaultsResponse{}
	limit := r.Msg.GetLimit()
	if limit == 0 || limit > mostCleared {
		limit = mostCleared
	}
	for ask := (&entityv1.ListEntitiesRequest{EntityType: t, Status: "parked", PageSize: clearPage}); ; {
		page, err := s.ListEntities(ctx, connect.NewRequest(ask))
		if err != nil {
			return nil, status.Public(s.log, err)
		}
		for _, e := range page.Msg.GetEntities() {
			if out.Cleared == limit {
				out.More = true
				return connect.NewResponse(out), nil
			}
			if _, err := s.ClearFaults(ctx, connect.NewRequest(&entityv1.ClearFaultsRequest{EntityType: t, EntityId: e.GetEntityId()})); err != nil {
				return nil, status.Public(s.log, err)
			}
			out.Cleared++
		}
		if ask.PageToken = page.Msg.GetNextPageToken(); ask.PageToken == "" {
			return connect.NewResponse(out), nil
		}
	}
}
