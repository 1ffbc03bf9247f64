package replay

import (
	"context"
	"errors"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

const (
	// scanPage is how many entities are listed at a time, and scanRows how many
	// rows of a shard are examined for them.
	scanPage = 512
	scanRows = 16 * scanPage
)

// eachEntity calls visit for the existing entities of a type in a shard, in the
// order of their ids, beginning after the given id. It ends with the first
// error of visit, or with the error of ctx. All checks list entities with it.
func eachEntity(ctx context.Context, m *eventlog.Machine, shard sharding.ShardID, entityType, after string, visit func(*eventlog.Info) error) error {
	for {
		page, err := m.Page(shard, eventlog.PageQuery{Type: entityType, After: after, Limit: scanPage, Looks: scanRows})
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		for i := range page.Entities {
			if err := errors.Join(ctx.Err(), visit(&page.Entities[i])); err != nil {
				return err
			}
		}
		if after = page.Next; after == "" {
			return nil
		}
	}
}

// eventAt calls look with the record that contains the event of an entity at a
// sequence, and with the event's index in it. It returns false if there is no
// such event. If the event was truncated, the error is a
// *journal.TruncatedError.
func eventAt(ctx context.Context, m *eventlog.Machine, shard sharding.ShardID, id sharding.EntityID, at journal.Sequence, look func(r *journal.Record, i int)) (found bool, err error) {
	err = m.Read(ctx, shard, id, at, func(_ journal.Position, r *journal.Record) error {
		if i := int(at - r.Expected - 1); at > r.Expected && i < len(r.Events) {
			found = true
			look(r, i)
			return errDone
		}
		return ctx.Err()
	})
	if found {
		err = nil
	}
	return found, err
}

// eventType returns the type of the event at a sequence, or "" if the event
// cannot be read.
func eventType(ctx context.Context, m *eventlog.Machine, shard sharding.ShardID, id sharding.EntityID, at journal.Sequence) (name string) {
	_, _ = eventAt(ctx, m, shard, id, at, func(r *journal.Record, i int) { name = r.Events[i].Type })
	return name
}

// drawn is a random sample of the entities that were offered to it, each with
// the same probability (reservoir sampling).
type drawn struct {
	size int
	seen int
	ids  []sharding.EntityID
}

// offer adds an entity to the sample with the right probability. draw returns a
// random number below its argument.
func (d *drawn) offer(id sharding.EntityID, draw func(below int) int) {
	if d.seen++; len(d.ids) < d.size {
		d.ids = append(d.ids, id)
	} else if at := draw(d.seen); at < d.size {
		d.ids[at] = id
	}
}
