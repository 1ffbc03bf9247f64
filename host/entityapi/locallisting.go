package entityapi

import (
	"context"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

const (
	// listRows limits the entities that one part of a listing reads.
	listRows = 8192
	// listAtOnce is the number of entities about which the executors are asked
	// at a time.
	listAtOnce = 512
)

// List implements Entities. It reads from the journal which entities exist, and
// asks the shard's executor which of them are resident or quarantined.
func (s entities) List(ctx context.Context, shard sharding.ShardID, q EntityQuery) (EntityPage, error) {
	leave, err := s.scan(ctx)
	if err != nil {
		return EntityPage{}, err
	}
	defer leave()
	if q.Status == "quarantined" {
		return s.listQuarantined(ctx, shard, q)
	}
	if q.Status == unverified {
		return s.listUnverified(ctx, shard, q)
	}
	var out EntityPage
	looks := listRows
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

// add adds the entities of a page that match the query, until the listing is
// full.
func (s entities) add(ctx context.Context, out *EntityPage, page eventlog.Page, q EntityQuery) (full bool, err error) {
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
		sum := EntitySummary{ID: ids[i].ID, Sequence: page.Entities[i].Sequence, Status: "active"}
		if live[i] != nil && live[i].Status == "quarantined" {
			sum.Status = "quarantined"
		}
		if page.Entities[i].Deleted {
			sum.Status = "deleted"
		}
		sum.Resident = live[i] != nil && live[i].Resident
		if !matchesQuery(sum, q) {
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

func matchesQuery(sum EntitySummary, q EntityQuery) bool {
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

const (
	// unverified is the status of entities that a module may have misread.
	unverified = "unverified"
	// unverifiedEntities limits the compacted histories that one part of a
	// listing examines, because each history requires reading a record and up to
	// four snapshots.
	unverifiedEntities = 64
)

// listUnverified lists the entities of a shard that a module may have misread
// after a takeover: their first events were compacted away, and a module made a
// snapshot after a different module had written them. Entities are left out if
// the metadata proves that this module loaded snapshots of other modules only
// after they were compared. One part of the listing examines few entities, so
// that other callers are served between two parts.
func (s entities) listUnverified(ctx context.Context, shard sharding.ShardID, q EntityQuery) (out EntityPage, err error) {
	view, left := s.Metadata.View(), unverifiedEntities
	page, err := s.Machine.Page(shard, eventlog.PageQuery{Type: q.Type, IDPrefix: q.IDPrefix, After: q.After, Limit: listAtOnce, Looks: listRows})
	if err != nil {
		return out, err
	}
	for i := range page.Entities {
		e := &page.Entities[i]
		if e.Cut == nil {
			continue
		}
		if left--; left < 0 || len(out.Entities) == q.Limit {
			out.Next = page.Entities[i-1].Entity.ID
			return out, nil
		}
		all, err := s.Machine.Takeovers(ctx, shard, e.Entity)
		if err != nil {
			return out, err
		}
		for _, t := range all {
			if !view.LoadsByProof(q.Type, meta.Digest(t.By)) {
				out.Entities = append(out.Entities, EntitySummary{ID: e.Entity.ID, Sequence: e.Sequence, Status: unverified, Takeover: &t})
				break
			}
		}
	}
	out.Next = page.Next
	return out, nil
}

// listQuarantined lists the quarantined entities of a shard. The shard's
// executor knows all of them.
func (s entities) listQuarantined(ctx context.Context, shard sharding.ShardID, q EntityQuery) (EntityPage, error) {
	var out EntityPage
	if q.ResidentOnly {
		return out, nil // quarantined entities are not resident
	}
	ids, err := s.ShardRouter.ListQuarantined(ctx, entity.QuarantineQuery{Shard: shard, Type: q.Type, IDPrefix: q.IDPrefix, After: q.After, Limit: q.Limit + 1})
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
		out.Entities = append(out.Entities, EntitySummary{ID: id, Sequence: head.Sequence, Status: "quarantined"})
	}
	return out, nil
}
