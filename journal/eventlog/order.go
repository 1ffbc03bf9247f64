package eventlog

import (
	"context"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// OrderRow is the place of a record in its shard's order.
type OrderRow = store.OrderRow

// ReadOrder calls fn with the place of each record that has events, in the
// shard's order, for the entries after the index after. It returns the index
// up to which it has looked: the cursor of the next call. The row is valid
// during the call. What is in the store and what was applied since is read as
// of one moment; a hole is journal.ErrDamaged.
func (r *Reader) ReadOrder(ctx context.Context, id sharding.ShardID, after uint64,
	fn func(row *store.OrderRow) error) (upTo uint64, err error) {
	o, err := r.orderSnapshot(id)
	if err != nil {
		return after, fmt.Errorf("read order of shard %d: %w", id, err)
	}
	defer o.view.Close()
	if after >= o.index {
		return after, nil
	}
	o.seen = after
	failed := false // fn has
	visit := func(row *store.OrderRow) error {
		err := ctx.Err()
		if err == nil {
			err = fn(row)
		}
		failed = err != nil
		return err
	}
	prefix := store.AppendPrefix(nil, id, o.generation, store.ClassOrder)
	start := store.AppendIndex(prefix[:len(prefix):len(prefix)], after+1)
	err = o.view.Scan(prefix, start, func(_, body []byte) error { return o.pack(body, visit) })
	if err == nil && o.seen < o.stored {
		err = &store.DamageError{Where: "the order of a shard", What: "a pack is missing", Action: rows.ActionReplace}
	}
	if err != nil && !failed {
		err = o.shard.met(err)
	}
	if err != nil {
		return after, fmt.Errorf("read order of shard %d: %w", id, err)
	}
	if err := o.overlay(after, visit); err != nil {
		return after, fmt.Errorf("read order of shard %d: %w", id, err)
	}
	return o.index, nil
}

// orderSnapshot is a shard's order at one moment.
type orderSnapshot struct {
	view       kv.View
	shard      *shard
	generation uint32
	index      uint64              // applied
	stored     uint64              // index of the last pack in the view
	seen       uint64              // packs are read up to here
	fresh      [][]*history.Record // newer than the view
}

func (r *Reader) orderSnapshot(id sharding.ShardID) (o orderSnapshot, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		if err := sh.unreadable(); err != nil {
			return o, err
		}
		o.shard, o.generation, o.index, o.stored = sh, sh.generation, sh.applied.Index, sh.applied.Ordered
		if r.flight != nil {
			for i := range r.flight.shards {
				if w := &r.flight.shards[i]; w.shard == sh {
					o.stored = w.before
					o.fresh = append(o.fresh, w.order)
				}
			}
		}
		o.fresh = append(o.fresh, sh.order)
	}
	o.view, err = r.view()
	return o, err
}

func (o *orderSnapshot) pack(body []byte, visit func(*store.OrderRow) error) error {
	p, err := store.OpenOrderPack(body)
	if err != nil {
		return err
	}
	if p.Previous > o.seen {
		return nil // it leaves something out: another pack has that
	}
	var row store.OrderRow
	last := o.seen
	for {
		more, err := p.Next(&row)
		if err != nil {
			return err
		}
		if !more || row.At.Index > o.stored {
			o.seen = last
			return nil
		}
		if row.At.Index <= o.seen {
			continue
		}
		last = row.At.Index
		if err := visit(&row); err != nil {
			return err
		}
	}
}

// overlay gives the rows of records that the view does not have.
func (o *orderSnapshot) overlay(after uint64, visit func(*store.OrderRow) error) error {
	var view journal.RecordView
	var buf []byte
	for _, order := range o.fresh {
		for _, r := range order {
			if r.At.Index <= after {
				continue
			}
			if err := view.Parse(r.Raw); err != nil {
				return err
			}
			buf = store.AppendOrderRow(store.AppendOrderStart(buf[:0], 0), 0, r.At, &view)
			p, err := store.OpenOrderPack(buf)
			if err != nil {
				return err
			}
			var row store.OrderRow
			if _, err := p.Next(&row); err != nil {
				return err
			}
			if err := visit(&row); err != nil {
				return err
			}
		}
	}
	return nil
}
