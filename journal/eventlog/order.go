package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// OrderRow is the row of a record in its shard's order.
type OrderRow = store.OrderRow

// OrderPlace is a place between two rows of a shard's order: before the row at
// At or, if Behind is set, after that row.
type OrderPlace struct {
	At     journal.Position
	Behind bool
}

// isAfter reports whether the place is after a row.
func (p OrderPlace) isAfter(row journal.Position) bool {
	return row.Less(p.At) || p.Behind && row == p.At
}

// isAppliedAt reports whether a replica with this applied index has all rows
// before the place.
func (p OrderPlace) isAppliedAt(index uint64) bool {
	return p.At.Index <= index || p.At == (journal.Position{Index: index + 1}) && !p.Behind
}

// OrderRange selects rows of a shard's order.
type OrderRange struct {
	// From is the place to start at; all rows of its entry are read.
	From OrderPlace
	// Fingerprint is the fingerprint of the last row before From, or that of the
	// zero Hash if there is no such row. It is 0 if unknown.
	Fingerprint uint32
	// UpTo is the last index to read.
	UpTo uint64
}

// ReadOrderRange is ReadOrder for readers that resume, possibly on a different
// replica and after a long time. It fails with journal.ErrOtherHistory if the
// fingerprint of the last row before From differs from the reader's: the events
// that the reader has seen are then not this shard's events, even if their
// number is the same. Rows written before sharding.VersionFingerprints have no
// fingerprint and match any. A replica that has not applied everything before
// From returns no rows.
//
// ReadOrderRange also returns the fingerprint of the last row up to index upTo.
func (r *Reader) ReadOrderRange(ctx context.Context, id sharding.ShardID, q OrderRange,
	fn func(row *store.OrderRow) error) (upTo uint64, fingerprint uint32, err error) {
	after := max(q.From.At.Index, 1) - 1
	o, err := r.orderSnapshot(id)
	if err != nil {
		return after, 0, fmt.Errorf("read event order of shard %d: %w", id, err)
	}
	defer o.view.Close()
	if !q.From.isAppliedAt(o.index) {
		return after, q.Fingerprint, nil
	}
	fingerprint, err = o.fingerprintBefore(q.From)
	switch {
	case err != nil:
		return after, 0, fmt.Errorf("read event order of shard %d: %w", id, o.shard.noteDamage(err))
	case fingerprint != 0 && q.Fingerprint != 0 && fingerprint != q.Fingerprint:
		return after, 0, fmt.Errorf("read event order of shard %d: %w", id, journal.ErrOtherHistory)
	}
	upTo, err = o.read(ctx, after, func(row *store.OrderRow) error {
		if row.At.Index > q.UpTo {
			return errUpTo
		}
		if !q.From.isAfter(row.At) {
			fingerprint = row.Fingerprint
		}
		return fn(row)
	})
	if errors.Is(err, errUpTo) {
		upTo, err = o.index, nil
	}
	upTo = min(upTo, max(q.UpTo, after))
	if err != nil {
		err = fmt.Errorf("read event order of shard %d: %w", id, err)
	}
	return upTo, fingerprint, err
}

// errUpTo ends reading a range, errBlock the search for a block.
var (
	errUpTo  = errors.New("end of range")
	errBlock = errors.New("block found")
)

// fingerprintBefore returns the fingerprint of the last row before a place. The
// block that covers the place contains that row or names the previous block, so
// it reads at most two blocks.
func (o *orderSnapshot) fingerprintBefore(p OrderPlace) (uint32, error) {
	for _, list := range slices.Backward(o.fresh) {
		if len(list) == 0 || !p.isAfter(list[0].At) {
			continue
		}
		for _, r := range slices.Backward(list) {
			if p.isAfter(r.At) {
				return r.Fingerprint, nil
			}
		}
	}
	fingerprint := journal.Hash{}.Fingerprint()
	if o.stored == 0 || p == (OrderPlace{}) {
		return fingerprint, nil
	}
	previous, known := o.stored, false
	look := func(body []byte) error {
		pack, err := store.OpenOrderPack(body)
		if err != nil {
			return err
		}
		var row store.OrderRow
		for previous = pack.Previous; ; known = true {
			if more, err := pack.Next(&row); err != nil || !more || !p.isAfter(row.At) {
				return err
			}
			fingerprint = row.Fingerprint
		}
	}
	prefix := store.AppendPrefix(nil, o.shard.id, o.generation, store.ClassOrder)
	if p.At.Index <= o.stored {
		err := o.view.Scan(prefix, store.AppendIndex(prefix[:len(prefix):len(prefix)], p.At.Index), func(_, body []byte) error {
			return cmp.Or(look(body), errBlock)
		})
		if err != nil && !errors.Is(err, errBlock) {
			return 0, err
		}
	}
	for !known && previous != 0 {
		key := previous
		found, err := o.view.Get(store.AppendIndex(prefix[:len(prefix):len(prefix)], key), look)
		if err != nil {
			return 0, err
		}
		if !found || previous >= key {
			return 0, &store.DamageError{Where: "the event order of a shard", What: "an order block is missing", Action: rows.ActionReplace}
		}
	}
	return fingerprint, nil
}

// ReadOrder calls fn with the order row of each record that has events, in
// shard order, starting with the entry that follows the index in after. It
// returns the index up to which it has read, which is the value of after for
// the next call. The row is only valid during the call. ReadOrder reads a
// consistent snapshot of the store and the memtable. It returns
// journal.ErrDamaged if the order has a gap.
func (r *Reader) ReadOrder(ctx context.Context, id sharding.ShardID, after uint64,
	fn func(row *store.OrderRow) error) (upTo uint64, err error) {
	o, err := r.orderSnapshot(id)
	if err != nil {
		return after, fmt.Errorf("read event order of shard %d: %w", id, err)
	}
	defer o.view.Close()
	if upTo, err = o.read(ctx, after, fn); err != nil {
		err = fmt.Errorf("read event order of shard %d: %w", id, err)
	}
	return upTo, err
}

// read calls fn with the rows after an index.
func (o *orderSnapshot) read(ctx context.Context, after uint64, fn func(row *store.OrderRow) error) (upTo uint64, err error) {
	if after >= o.index {
		return after, nil
	}
	o.seen = after
	failed := false // fn returned an error
	visit := func(row *store.OrderRow) error {
		err := ctx.Err()
		if err == nil {
			err = fn(row)
		}
		failed = err != nil
		return err
	}
	prefix := store.AppendPrefix(nil, o.shard.id, o.generation, store.ClassOrder)
	start := store.AppendIndex(prefix[:len(prefix):len(prefix)], after+1)
	err = o.view.Scan(prefix, start, func(_, body []byte) error { return o.pack(body, visit) })
	if err == nil && o.seen < o.stored {
		err = &store.DamageError{Where: "the event order of a shard", What: "an order block is missing", Action: rows.ActionReplace}
	}
	if err != nil && !failed {
		err = o.shard.noteDamage(err)
	}
	if err == nil {
		err = o.readMemtable(after, visit)
	}
	if err != nil {
		return after, err
	}
	return o.index, nil
}

// orderSnapshot is a shard's order at one point in time.
type orderSnapshot struct {
	view       kv.View
	shard      *shard
	generation uint32
	index      uint64              // applied index
	stored     uint64              // index of the last block in the view
	seen       uint64              // blocks have been read up to this index
	fresh      [][]*history.Record // newer than the view
}

func (r *Reader) orderSnapshot(id sharding.ShardID) (o orderSnapshot, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		if err := sh.readError(); err != nil {
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
		return nil // it leaves a gap, which a different block covers
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

// readMemtable visits the rows of records that are not in the view.
func (o *orderSnapshot) readMemtable(after uint64, visit func(*store.OrderRow) error) error {
	var view journal.RecordView
	var buf []byte
	pack := store.OrderWriter{Fingerprints: true}
	for _, order := range o.fresh {
		for _, r := range order {
			if r.At.Index <= after {
				continue
			}
			if err := view.Parse(r.Raw); err != nil {
				return err
			}
			buf = pack.Row(pack.Start(buf[:0], 0), 0, r.At, r.Fingerprint, &view)
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
