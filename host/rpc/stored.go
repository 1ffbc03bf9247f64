package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// storedWait bounds the look for entities of a type in all shards.
const storedWait = 10 * time.Second

// storedEntities looks where shards are led.
type storedEntities struct{ entities *entityService }

// of tells whether there are entities of a type.
func (s storedEntities) of(entityType string) Stored {
	return func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, storedWait)
		defer cancel()
		for ask := (&entityv1.ListEntitiesRequest{EntityType: entityType, PageSize: 1}); ; {
			page, err := s.entities.ListEntities(ctx, connect.NewRequest(ask))
			if err != nil {
				return false, err
			}
			if len(page.Msg.GetEntities()) > 0 {
				return true, nil
			}
			if ask.PageToken = page.Msg.GetNextPageToken(); ask.PageToken == "" {
				return false, nil
			}
		}
	}
}
