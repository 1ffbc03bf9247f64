package backend

import (
	"context"
	"errors"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

const (
	// mostEventTypes bounds what is told apart of one type in one shard.
	mostEventTypes = 1024
	// mostCatalogues bounds what is remembered; one more makes room for itself. So
	// does one that has all of them hold more than mostNames event types, each of
	// up to 255 bytes: a guest may name its events by what callers say.
	mostCatalogues = 4096
	mostNames      = 1 << 17
	// cataloguePage is how many entities are listed at a time, and how many that
	// have changed are read at a time.
	cataloguePage = 512
)

// catalogue is which event types the living entities of a type have stored in a
// shard, and how many of each. It is no state of the shard: it is read from the
// histories, entity by entity the first time, and then from what came since.
// What was cut, or deleted, after it was counted stays in it.
type catalogue struct {
	counts map[string]uint64
	more   bool // event types beyond mostEventTypes

	walked bool   // every entity was read once
	after  string // until then: those up to it were
	upTo   uint64 // events of entries up to it are counted, by the walk or since
}

// catalogueKey names one.
type catalogueKey struct {
	shard      sharding.ShardID
	entityType string
}

// catalogues are those of a node, which go on where they were left. One
// goroutine has them at a time.
type catalogues struct {
	turn  chan struct{}
	known map[catalogueKey]*catalogue
}

func newCatalogues() *catalogues {
	return &catalogues{turn: make(chan struct{}, 1), known: map[catalogueKey]*catalogue{}}
}

// of brings the catalogue of a type up to now and calls look with it. Where ctx
// ends before, it has what was counted until then and complete is false.
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

// trim forgets catalogues, except one, while they have too many event types.
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

// counting brings one catalogue on.
type counting struct {
	*catalogue
	machine *eventlog.Machine
	key     catalogueKey
}

// walk reads every entity, up to the entry that was the newest as it began.
func (c *counting) walk(ctx context.Context) error {
	for !c.walked {
		page, err := c.machine.Page(c.key.shard, eventlog.PageQuery{Type: c.key.entityType, After: c.after, Limit: cataloguePage, Looks: 16 * cataloguePage})
		if err != nil {
			return err
		}
		for i := range page.Entities {
			if err := c.count(ctx, page.Entities[i].Entity, 1, 0, c.upTo); err != nil {
				return err
			}
			c.after = page.Entities[i].Entity.ID
		}
		c.after = page.Next
		c.walked = page.Next == ""
	}
	return nil
}

// errEnough ends the reading of an order.
var errEnough = errors.New("enough for one page")

// follow reads what came since, by the shard's order.
func (c *counting) follow(ctx context.Context) error {
	for {
		changed, last := map[string]journal.Sequence{}, uint64(0)
		upTo, err := c.machine.ReadOrder(ctx, c.key.shard, c.upTo, func(row *store.OrderRow) error {
			if len(changed) >= cataloguePage && row.At.Index > last {
				return errEnough
			}
			last = row.At.Index
			if _, known := changed[string(row.ID)]; !known && string(row.Type) == c.key.entityType {
				changed[string(row.ID)] = row.First
			}
			return nil
		})
		enough := errors.Is(err, errEnough)
		if enough {
			upTo = last
		} else if err != nil {
			return err
		}
		// All or nothing: what is counted of a page is counted again otherwise.
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

// errRead ends the reading of an entity.
var errRead = errors.New("that is all of it")

// count adds the events of an entity's life of now, from a sequence, of the
// entries over one and up to another.
func (c *counting) count(ctx context.Context, id sharding.EntityID, from journal.Sequence, over, upTo uint64) error {
	events := map[string]uint64{}
	read := func(at journal.Position, r *journal.Record) error {
		if at.Index > upTo {
			return errRead
		}
		for i := range r.Events {
			if !r.Tombstone(i) && at.Index > over {
				events[r.Events[i].Type]++
			}
		}
		if r.Flags&journal.FlagTombstone != 0 {
			clear(events) // of a life that is over
		}
		return ctx.Err()
	}
	err := c.machine.Read(ctx, c.key.shard, id, from, read)
	if cut := (*journal.CutError)(nil); errors.As(err, &cut) {
		err = c.machine.Read(ctx, c.key.shard, id, cut.First, read)
	}
	if err != nil && !errors.Is(err, errRead) {
		return err
	}
	for name, n := range events {
		c.add(name, n)
	}
	return nil
}
