package history

import (
	"context"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
)

// follower moves forward through an entity's records in blocks that may
// overlap, and passes on each record once.
type follower struct {
	ctx     context.Context
	from    journal.Sequence
	end     journal.Position // nothing after this position is wanted
	fn      Visit
	failed  error // error of fn or ctx
	started bool  // at, seq and hash describe the last record, or the start
	at      journal.Position
	seq     journal.Sequence
	hash    journal.Hash

	chain journal.Chain
	view  journal.RecordView
	rec   journal.Record
}

func (f *follower) pack(body []byte) error {
	p, err := store.OpenPack(body)
	if err != nil {
		return err
	}
	if f.started && f.at.Less(p.Previous) {
		return nil // it leaves a gap, which a different block covers
	}
	if !f.started {
		p.SkipBefore(f.from)
	}
	for {
		at, raw, err := p.Next()
		if err != nil || raw == nil {
			return err
		}
		if f.end.Less(at) {
			return store.ErrStop
		}
		if gap, err := f.record(at, raw); gap || err != nil {
			return err
		}
	}
}

// record passes on one record. gap means that the record starts after the next
// record that is needed, so that records in between are missing.
func (f *follower) record(at journal.Position, raw []byte) (gap bool, err error) {
	if f.started && !f.at.Less(at) {
		return false, nil
	}
	if err := f.view.Parse(raw); err != nil {
		return false, err
	}
	if !f.started {
		if f.view.Last() < f.from {
			return false, nil
		}
		if f.view.Expected >= f.from {
			return true, nil
		}
		f.started, f.seq, f.hash = true, f.view.Expected, f.view.Prev
	}
	if f.view.Expected != f.seq || f.view.Prev != f.hash {
		return false, damageError("a record does not follow the previous one")
	}
	f.at, f.seq, f.hash = at, f.view.Last(), f.chain.AfterView(f.hash, &f.view)
	if err := f.rec.Decode(raw); err != nil {
		return false, err
	}
	if f.failed = f.ctx.Err(); f.failed == nil {
		f.failed = f.fn(at, &f.rec, f.hash)
	}
	return false, f.failed
}

func damageError(what string) error {
	return &store.DamageError{Where: "the history of an entity", What: what,
		Action: "stop the node and run 'hostd verify' on it"}
}

// hasReached reports whether the last record read is the last record according
// to the entity row.
func (f *follower) hasReached(h *store.Head) bool {
	return f.at == h.Last && f.seq == h.Sequence && f.hash == h.Hash
}

// anchor positions the follower at the start of an entity's records.
func (f *follower) anchor(c *store.Cut) {
	f.started = true
	if c != nil {
		f.at, f.seq, f.hash = c.Last, c.Sequence, c.Hash
	}
}

// begin positions the follower for a read from a sequence. It fails if records
// from there on were truncated.
func (f *follower) begin(c *store.Cut, from journal.Sequence) error {
	f.from = from
	switch {
	case c != nil && from < c.Sequence:
		return &journal.TruncatedError{First: c.Sequence + 1}
	case from == 0 || c != nil && from == c.Sequence:
		f.anchor(c)
	}
	return nil
}
