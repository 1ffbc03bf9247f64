package eventlog

import (
	"context"

	"github.com/hostd/hostd/sharding"
)

// ListExisting returns up to limit ids of entities of one type in a shard, in
// order, starting after the id in after. It lists the entities that exist and
// were not stopped by their last record. It returns fewer than limit ids only
// at the end.
func (r *Reader) ListExisting(ctx context.Context, id sharding.ShardID, entityType, after string, limit int) ([]string, error) {
	ids := make([]string, 0, limit)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		page, err := r.List(id, entityType, "", after, limit)
		if err != nil {
			return nil, err
		}
		for i := range page {
			if !page[i].Stopped {
				if ids = append(ids, page[i].Entity.ID); len(ids) == limit {
					return ids, nil
				}
			}
		}
		if len(page) < limit {
			return ids, nil
		}
		after = page[len(page)-1].Entity.ID
	}
}
