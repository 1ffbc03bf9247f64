package eventlog

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

// ShardExport is the state of a shard at one index of its log, for export. It
// keeps old versions in the store until Close. It must be used by one
// goroutine.
type ShardExport struct {
	Shard    sharding.ShardID
	Index    uint64 // applied index
	Term     sharding.Term
	Clock    int64  // log clock at that index, in Unix nanoseconds
	Entities uint64 // number of entities, including deleted ones

	rows *rows.Known
	view kv.View
}

// newShardExport returns the state of a shard in the view. It takes ownership
// of the view.
func newShardExport(known *rows.Known, mark *store.Applied, view kv.View) *ShardExport {
	return &ShardExport{
		Shard: known.Shard, Index: mark.Index, Term: mark.Term, Clock: mark.Clock, Entities: mark.Heads,
		rows: known, view: view,
	}
}

// exportRows is the number of entity rows read at a time.
const exportRows = 256

// Close releases the export.
func (c *ShardExport) Close() { c.view.Close() }

// Parts calls fn for every part of the shard, entities first, in an order in
// which they can be imported. The data is only valid during the call. The
// history of each entity is verified. An error of fn ends the iteration and is
// returned.
func (c *ShardExport) Parts(ctx context.Context, fn func(kind journal.PartKind, data []byte) error) error {
	p := parts{ShardExport: c, ctx: ctx, fn: fn}
	if err := p.entities(); err != nil {
		return fmt.Errorf("export shard %d: %w", c.Shard, err)
	}
	if err := p.messages(); err != nil {
		return fmt.Errorf("export shard %d: %w", c.Shard, err)
	}
	return nil
}

// parts is one iteration of an export.
type parts struct {
	*ShardExport
	ctx context.Context
	fn  func(kind journal.PartKind, data []byte) error
	key []byte
	buf []byte
}

func (p *parts) prefix(class store.Class) []byte {
	p.key = store.AppendPrefix(p.key[:0], p.Shard, p.rows.Generation, class)
	return p.key[:len(p.key):len(p.key)]
}

// exportedEntity is an entity whose history is read next.
type exportedEntity struct {
	entity []byte
	head   store.Head
}

func (p *parts) entities() error {
	prefix := append([]byte{}, p.prefix(store.ClassEntity)...)
	var page []exportedEntity
	for from := prefix; from != nil; {
		page = page[:0]
		next := []byte(nil)
		err := p.view.Scan(prefix, from, func(key, body []byte) error {
			if len(page) == exportRows {
				next = append([]byte{}, key...)
				return store.ErrStop
			}
			h, err := store.DecodeHead(body)
			page = append(page, exportedEntity{append([]byte{}, key[len(prefix):]...), h})
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

func (p *parts) entity(h *exportedEntity) error {
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

func (p *parts) records(h *exportedEntity) (n uint64, err error) {
	e := history.Entity{Head: h.head, Exists: true, View: p.view, Rows: p.rows, Key: h.entity}
	return e.Records(p.ctx, func(raw []byte) error { return p.fn(journal.PartRecord, raw) })
}

func (p *parts) snapshot(h *exportedEntity, seq journal.Sequence) error {
	key := store.AppendSnapshotSuffix(append(p.prefix(store.ClassSnapshot), h.entity...), seq)
	found, err := p.view.Get(key, func(body []byte) error { return p.fn(journal.PartSnapshot, body) })
	if err == nil && !found {
		err = &store.DamageError{Where: "the snapshots of an entity", What: "a snapshot is missing"}
	}
	return err
}

// timers exports the entity's timers in the order of their names.
func (p *parts) timers(e sharding.EntityID, h *exportedEntity) error {
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
