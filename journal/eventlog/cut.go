package eventlog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hostd/hostd/journal"
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

	generation uint32
	view       View
}

// cutHeads is how many heads are read at a time.
const cutHeads = 256

// Cut returns the shard's state as the store has it now, which is behind what
// is applied by what Held says. It does no I/O.
func (m *Machine) Cut(id sharding.ShardID) (*Cut, error) {
	e, err := m.Pin(id)
	if err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	sh := m.shards[id]
	if sh.flushed.Index != e.header.Index {
		e.Close()
		return nil, fmt.Errorf("export shard %d: %w", id, ErrInstalling) // another batch was stored meanwhile
	}
	c := &Cut{Shard: id, generation: sh.generation, view: e.view, Index: sh.flushed.Index, Term: sh.flushed.Term}
	c.Clock, c.Entities = sh.flushed.Clock, sh.flushed.Heads
	return c, nil
}

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
	if err := p.sends(); err != nil {
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
	p.key = store.AppendPrefix(p.key[:0], p.Shard, p.generation, class)
	return p.key[:len(p.key):len(p.key)]
}

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
	s := snapshot{Head: h.head, exists: true, view: p.view, shard: p.Shard, generation: p.generation, key: h.entity}
	f := &follower{ctx: p.ctx, end: h.head.Last}
	f.anchor(h.head.Cut)
	f.fn = func(journal.Position, *journal.Record, journal.Hash) error {
		n++
		return p.fn(journal.PartRecord, f.view.Raw)
	}
	err = s.walk(f)
	if err == nil && (f.at != h.head.Last || f.seq != h.head.Sequence || f.hash != h.head.Hash || n != h.head.Records) {
		err = damagedHistory("its records do not reach its head")
	}
	return n, err
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
	var all []timerPlace
	err := eachTimer(p.view, p.Shard, p.generation, entity, &h.head, func(t timerPlace) error {
		all = append(all, t)
		return p.ctx.Err()
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b timerPlace) int { return strings.Compare(a.key, b.key) })
	for _, t := range all {
		stored, err := readTimer(p.view, p.Shard, p.generation, t)
		if err != nil {
			return err
		}
		p.buf = journal.AppendPartialTimer(p.buf[:0], &journal.PartialTimer{
			Entity: e, Name: []byte(t.key[len(entity):]), Due: t.due, Command: stored.Command, Payload: stored.Payload, Schedule: stored.Schedule,
		})
		if err := p.fn(journal.PartTimer, p.buf); err != nil {
			return err
		}
	}
	return nil
}

// sends gives what the shard has of sends: first the numbers, then what waits,
// in the order that it was made.
func (p *parts) sends() error {
	for _, c := range []struct {
		class store.Class
		kind  journal.PartKind
	}{{store.ClassCount, journal.PartPair}, {store.ClassInbox, journal.PartInbox}} {
		prefix := append([]byte{}, p.prefix(c.class)...)
		err := p.view.Scan(prefix, nil, func(key, body []byte) error { return p.number(c.kind, key[len(prefix):], body) })
		if err != nil {
			return err
		}
	}
	for _, c := range []struct {
		class store.Class
		kind  journal.PartKind
	}{{store.ClassOutbox, journal.PartSend}, {store.ClassLetter, journal.PartLetter}} {
		prefix := append([]byte{}, p.prefix(c.class)...)
		err := p.view.Scan(prefix, nil, func(key, body []byte) error { return p.transfer(c.kind, key[len(prefix):], body) })
		if err != nil {
			return err
		}
	}
	return nil
}

// number gives the number of a pair. What else is counted follows from the
// other parts.
func (p *parts) number(kind journal.PartKind, rest, body []byte) error {
	if len(rest) == 0 {
		return p.ctx.Err() // the shard's totals
	}
	c := journal.Count{}
	e, other, err := store.SplitEntity(string(rest))
	if err != nil {
		return err
	}
	if other == "" {
		return p.ctx.Err() // how many sends of an entity wait
	}
	c.Entity = e
	if c.Other, _, err = store.SplitEntity(other); err != nil {
		return err
	}
	if kind == journal.PartPair {
		pair, perr := store.DecodePairCount(body)
		c.Number, c.After, c.GivenUp, err = pair.Last, pair.After, pair.GivenUp, perr
	} else {
		c.Number, err = store.DecodeCount(body)
	}
	if err != nil {
		return err
	}
	p.buf = journal.AppendPartCount(p.buf[:0], &c)
	return p.fn(kind, p.buf)
}

func (p *parts) transfer(kind journal.PartKind, rest, body []byte) error {
	id, err := store.DecodeItemID(rest)
	if err != nil {
		return err
	}
	t := journal.Transfer{Body: body}
	if kind == journal.PartLetter {
		l, lerr := store.DecodeLetter(body, id)
		if t.Entity, err = l.Destination, lerr; l.Number == 0 {
			t.Entity = l.Source
		}
	} else {
		s, serr := store.DecodeSend(body, id)
		t.Entity, err = s.Source, serr
	}
	if err != nil {
		return err
	}
	p.buf = journal.AppendTransfer(p.buf[:0], &t)
	return p.fn(kind, p.buf)
}
