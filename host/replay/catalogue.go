package replay

import (
	"context"
	"errors"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

const (
	// mostEventTypes is the maximum number of event types that are counted for one
	// entity type in one shard.
	mostEventTypes = 1024
	// mostCatalogues is the maximum number of cached catalogues, and mostNames
	// the maximum number of event types in all of them together. If a limit is
	// exceeded, other catalogues are evicted. The second limit is necessary
	// because names have up to 255 bytes and a guest may derive them from its
	// callers' input.
	mostCatalogues = 4096
	mostNames      = 1 << 17
	// cataloguePage is the number of changed entities that are read at a time.
	cataloguePage = 512
)

// catalogue counts the stored events of a type's existing entities in a shard,
// by event type. It is not part of the shard's state: the first time, every
// entity's history is read, and later only the records added since. Events that
// were compacted or deleted after they were counted stay counted.
type catalogue struct {
	counts map[string]uint64
	more   bool // there are event types beyond mostEventTypes, which are not counted

	walked bool   // every entity has been read
	after  string // if walked is not set: entities up to this id have been read
	upTo   uint64 // the events of entries up to this index are counted
}

// catalogueKey identifies a catalogue.
type catalogueKey struct {
	shard      sharding.ShardID
	entityType string
}

// catalogues caches the catalogues of a node, so that each update continues
// where the previous one stopped. Only the goroutine that holds turn may use
// them.
type catalogues struct {
	turn  chan struct{}
	known map[catalogueKey]*catalogue
}

func newCatalogues() *catalogues {
	return &catalogues{turn: make(chan struct{}, 1), known: map[catalogueKey]*catalogue{}}
}

// of updates the catalogue of a type and calls look with its counts. If ctx
// ends during the update, look gets the counts so far and complete is false.
func (c *catalogues) of(ctx context.Context, machine *eventlog.Machine, key catalogueKey, look func(counts map[string]uint64)) (complete bool, err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return false, nil
	}
	k := c.known[key]
	if k == nil {
		for other := range c.known {
			if len(c.known) < mostCatalogues {
				break
			}
			delete(c.known, other)
		}
		k = &catalogue{counts: map[string]uint64{}}
		k.upTo, _ = machine.Applied(key.shard)
		c.known[key] = k
	}
	r := counting{catalogue: k, machine: machine, key: key}
	if err = r.walk(ctx); err == nil {
		err = r.follow(ctx)
	}
	c.trim(key)
	look(k.counts)
	if err != nil && ctx.Err() != nil {
		return false, nil
	}
	return err == nil && !k.more, err
}

// trim evicts catalogues until they have at most mostNames event types
// together. It keeps the catalogue of except.
func (c *catalogues) trim(except catalogueKey) {
	names := 0
	for _, k := range c.known {
		names += len(k.counts)
	}
	for key, k := range c.known {
		if names <= mostNames {
			return
		}
		if key != except {
			names -= len(k.counts)
			delete(c.known, key)
		}
	}
}

// counting updates one catalogue.
type counting struct {
	*catalogue
	machine *eventlog.Machine
	key     catalogueKey
}

// walk counts the events of every entity, up to the entry that was the newest
// when the catalogue was created.
func (c *counting) walk(ctx context.Context) error {
	if c.walked {
		return nil
	}
	err := eachEntity(ctx, c.machine, c.key.shard, c.key.entityType, c.after, func(e *eventlog.Info) error {
		err := c.count(ctx, e.Entity, 1, 0, c.upTo)
		if err == nil {
			c.after = e.Entity.ID
		}
		return err
	})
	c.walked = err == nil
	return err
}

// follow counts the events of the entries after upTo. It finds the changed
// entities in the shard's order.
func (c *counting) follow(ctx context.Context) error {
	for {
		changed, last := map[string]journal.Sequence{}, uint64(0)
		upTo, err := c.machine.ReadOrder(ctx, c.key.shard, c.upTo, func(row *eventlog.OrderRow) error {
			if len(changed) >= cataloguePage && row.At.Index > last {
				return errPlenty
			}
			last = row.At.Index
			if _, known := changed[string(row.ID)]; !known && string(row.Type) == c.key.entityType {
				changed[string(row.ID)] = row.First
			}
			return nil
		})
		enough := errors.Is(err, errPlenty)
		if enough {
			upTo = last
		} else if err != nil {
			return err
		}
		// The counts of a page are added only if the whole page was read, because a
		// failed page is read again.
		sum := counting{catalogue: &catalogue{counts: map[string]uint64{}}, machine: c.machine, key: c.key}
		for id, first := range changed {
			entity := sharding.EntityID{Type: c.key.entityType, ID: id}
			if info, err := c.machine.Info(c.key.shard, entity); err != nil {
				return err
			} else if info.Deleted {
				continue
			}
			if err := sum.count(ctx, entity, first, c.upTo, upTo); err != nil {
				return err
			}
		}
		for name, n := range sum.counts {
			c.add(name, n)
		}
		c.more = c.more || sum.more
		if c.upTo = upTo; !enough {
			return nil
		}
	}
}

func (c *catalogue) add(name string, n uint64) {
	if _, known := c.counts[name]; !known && len(c.counts) >= mostEventTypes {
		c.more = true
		return
	}
	c.counts[name] += n
}

// count adds events of an entity's current incarnation: those from the given
// sequence on that were stored by entries after over and up to upTo.
func (c *counting) count(ctx context.Context, id sharding.EntityID, from journal.Sequence, over, upTo uint64) error {
	events := map[string]uint64{}
	read := func(at journal.Position, r *journal.Record) error {
		if at.Index > upTo {
			return errDone
		}
		for i := range r.Events {
			if !r.Tombstone(i) && at.Index > over {
				events[r.Events[i].Type]++
			}
		}
		if r.Flags&journal.FlagTombstone != 0 {
			clear(events) // these events belong to a deleted incarnation
		}
		return ctx.Err()
	}
	err := c.machine.Read(ctx, c.key.shard, id, from, read)
	if cut := (*journal.TruncatedError)(nil); errors.As(err, &cut) {
		err = c.machine.Read(ctx, c.key.shard, id, cut.First, read)
	}
	if err != nil && !errors.Is(err, errDone) {
		return err
	}
	for name, n := range events {
		c.add(name, n)
	}
	return nil
}
