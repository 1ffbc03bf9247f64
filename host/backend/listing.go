package backend

import (
	"context"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

const (
	// listHeads bounds the entities that one part of a listing reads.
	listHeads = 8192
	// listAtOnce is how many of them the lanes are asked about at a time.
	listAtOnce = 512
)

// List implements rpc.Entities. What exists is read from the journal; who is in
// memory or parked, the shard's lane says.
func (s entities) List(ctx context.Context, shard sharding.ShardID, q rpc.EntityQuery) (rpc.EntityPage, error) {
	if q.Status == "parked" {
		return s.parked(ctx, shard, q)
	}
	var out rpc.EntityPage
	looks := listHeads
	for out.Next = q.After; ; {
		asked := eventlog.PageQuery{
			Type: q.Type, IDPrefix: q.IDPrefix, After: out.Next, Deleted: q.Status == "deleted",
			Limit: min(listAtOnce, q.Limit), Looks: looks,
		}
		if q.ResidentOnly || q.Status != "" {
			asked.Limit = listAtOnce
		}
		page, err := s.Machine.Page(shard, asked)
		if err != nil {
			return out, err
		}
		full, err := s.add(ctx, &out, page, q)
		if err != nil || full {
			return out, err
		}
		if out.Next = page.Next; page.Next == "" || len(out.Entities) == q.Limit {
			return out, nil
		}
		if looks -= len(page.Entities); looks <= 0 || len(page.Entities) < asked.Limit {
			return out, nil
		}
	}
}

// add adds what the query wants of a page, until the listing is full.
func (s entities) add(ctx context.Context, out *rpc.EntityPage, page eventlog.Page, q rpc.EntityQuery) (full bool, err error) {
	ids := make([]sharding.EntityID, len(page.Entities))
	for i := range page.Entities {
		ids[i] = page.Entities[i].Entity
	}
	live := make([]*request.Info, len(ids))
	if len(ids) > 0 && q.Status != "deleted" {
		if live, err = s.inspect(ctx, ids); err != nil {
			return false, err
		}
	}
	for i := range page.Entities {
		sum := rpc.EntitySummary{ID: ids[i].ID, Sequence: page.Entities[i].Sequence, Status: "active"}
		if live[i] != nil && live[i].Status == "parked" {
			sum.Status = "parked"
		}
		if page.Entities[i].Deleted {
			sum.Status = "deleted"
		}
		sum.Resident = live[i] != nil && live[i].Resident
		if !wanted(sum, q) {
			continue
		}
		if len(out.Entities) == q.Limit {
			out.Next = out.Entities[q.Limit-1].ID
			return true, nil
		}
		out.Entities = append(out.Entities, sum)
	}
	return false, nil
}

func wanted(sum rpc.EntitySummary, q rpc.EntityQuery) bool {
	if q.ResidentOnly && !sum.Resident {
		return false
	}
	switch q.Status {
	case "":
		return true
	case "resident":
		return sum.Resident
	case "passivated":
		return !sum.Resident && sum.Status == "active"
	}
	return sum.Status == q.Status
}

// parked lists the parked entities of a shard: its lane knows them all.
func (s entities) parked(ctx context.Context, shard sharding.ShardID, q rpc.EntityQuery) (rpc.EntityPage, error) {
	var out rpc.EntityPage
	if q.ResidentOnly {
		return out, nil // what is parked is not in memory
	}
	ids, err := s.Region.Parked(ctx, entity.ParkedQuery{Shard: shard, Type: q.Type, IDPrefix: q.IDPrefix, After: q.After, Limit: q.Limit + 1})
	if err != nil {
		return out, err
	}
	for i, id := range ids {
		if i == q.Limit {
			out.Next = ids[i-1]
			break
		}
		head, err := s.Machine.Info(shard, sharding.EntityID{Type: q.Type, ID: id})
		if err != nil {
			return out, err
		}
		out.Entities = append(out.Entities, rpc.EntitySummary{ID: id, Sequence: head.Sequence, Status: "parked"})
	}
	return out, nil
}
