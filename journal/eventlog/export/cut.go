package export

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Cut is what a shard holds as of one index of its log, to be exported. It
// holds old versions in the store until Close. It serves one goroutine.
type Cut struct {
	Shard    sharding.ShardID
	Index    uint64 // last applied
	Term     sharding.Term
	Clock    int64  // the log clock there, unix nanoseconds
	Entities uint64 // heads, the deleted ones too

	rows *rows.Known
	view kv.View
}

// NewCut is what the view has of a shard, as of an applied mark. The view becomes
// its own.
func NewCut(known *rows.Known, mark *store.Applied, view kv.View) *Cut {
	return &Cut{
		Shard: known.Shard, Index: mark.Index, Term: mark.Term, Clock: mark.Clock, Entities: mark.Heads,
		rows: known, view: view,
	}
}

// cutHeads is how many heads are read at a time.
const cutHeads = 256

// Close gives the cut up.
func (c *Cut) Close() { c.view.Close() }

// Parts calls fn for every part of the shard, entities first, in an order that
// a shard can be imported in. The data is only lent. Each entity's history is
// verified on the way. An error of fn ends it and is returned.
func (c *Cut) Parts(ctx context.Context, fn func(kind journal.PartKind, data []byte) error) error {
	p := parts{Cut: c, ctx: ctx, fn: fn}
	if err := p.entities(); err != nil {
		return fmt.Errorf("export shard %d: %w", c.Shard, err)
	}
	if err := p.messages(); err != nil {
		return fmt.Errorf("export shard %d: %w", c.Shard, err)
	}
	return nil
}

// parts is one reading of a cut.
type parts struct {
	*Cut
	ctx context.Context
	fn  func(kind journal.PartKind, data []byte) error
	key []byte
	buf []byte
}

func (p *parts) prefix(class store.Class) []byte {
	p.key = store.AppendPrefix(p.key[:0], p.Shard, p.rows.Generation, class)
	return p.key[:len(p.key):len(p.key)]
}

// cutHead is an entity of the cut, whose history is read next.
type cutHead struct {
	entity []byte
	head   store.Head
}

func (p *parts) entities() error {
	prefix := append([]byte{}, p.prefix(store.ClassEntity)...)
	var page []cutHead
	for from := prefix; from != nil; {
		page = page[:0]
		next := []byte(nil)
		err := p.view.Scan(prefix, from, func(key, body []byte) error {
			if len(page) == cutHeads {
				next = append([]byte{}, key...)
				return store.ErrStop
			}
			h, err := store.DecodeHead(body)
			page = append(page, cutHead{append([]byte{}, key[len(prefix):]...), h})
			return err
		})
		if err != nil {
			return err
		}
		for i := range page {
			if err := p.entity(&page[i]); err != nil {
				return err
			}
		}
		from = next
	}
	return nil
}

func (p *parts) entity(h *cutHead) error {
	e, _, err := store.SplitEntity(string(h.entity))
	if err != nil {
		return err
	}
	end := journal.EntityEnd{Entity: e, Sequence: h.head.Sequence, Hash: h.head.Hash, Timers: h.head.Timers}
	if end.Records, err = p.records(h); err != nil {
		return err
	}
	for _, seq := range h.head.Snapshots[:h.head.Snapshots.Len()] {
		if err := p.snapshot(h, seq); err != nil {
			return err
		}
		end.Snapshots++
	}
	if h.head.Timers > 0 {
		if err := p.timers(e, h); err != nil {
			return err
		}
	}
	p.buf = journal.AppendEntityEnd(p.buf[:0], &end)
	return p.fn(journal.PartEnd, p.buf)
}

func (p *parts) records(h *cutHead) (n uint64, err error) {
	e := history.Entity{Head: h.head, Exists: true, View: p.view, Rows: p.rows, Key: h.entity}
	return e.Records(p.ctx, func(raw []byte) error { return p.fn(journal.PartRecord, raw) })
}

func (p *parts) snapshot(h *cutHead, seq journal.Sequence) error {
	key := store.AppendSnapshotSuffix(append(p.prefix(store.ClassSnapshot), h.entity...), seq)
	found, err := p.view.Get(key, func(body []byte) error { return p.fn(journal.PartSnapshot, body) })
	if err == nil && !found {
		err = &store.DamageError{Where: "the snapshots of an entity", What: "one is missing"}
	}
	return err
}

// timers are in the order of their names.
func (p *parts) timers(e sharding.EntityID, h *cutHead) error {
	entity := string(h.entity)
	var all []timers.Place
	err := timers.Each(p.view, p.rows, entity, &h.head, func(t timers.Place) error {
		all = append(all, t)
		return p.ctx.Err()
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b timers.Place) int { return strings.Compare(a.Key, b.Key) })
	life := len(store.AppendLife(h.entity[:len(h.entity):len(h.entity)], h.head.Life))
	for _, t := range all {
		stored, err := timers.Read(p.view, p.rows, t)
		if err != nil {
			return err
		}
		p.buf = journal.AppendPartialTimer(p.buf[:0], &journal.PartialTimer{
			Entity: e, Name: []byte(t.Key[life:]), Due: t.Due, Command: stored.Command, Payload: stored.Payload, Schedule: stored.Schedule,
		})
		if err := p.fn(journal.PartTimer, p.buf); err != nil {
			return err
		}
	}
	return nil
}
