package history

import (
	"context"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
)

// follower goes forward through an entity's records from packs that may
// overlap, and lets through what comes next.
type follower struct {
	ctx     context.Context
	from    journal.Sequence
	end     journal.Position // nothing after it is wanted
	fn      Visit
	failed  error // of fn or ctx
	started bool  // at, seq and hash are those of the last record, or of none
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
		return nil // it leaves something out: another pack has that
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

// record takes one record; gap means that it starts beyond what is wanted
// first.
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
		return false, damaged("a record does not follow the one before it")
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

func damaged(what string) error {
	return &store.DamageError{Where: "the history of an entity", What: what,
		Action: "run hostd verify on the stopped node"}
}

// reached reports whether the last record is that of a head.
func (f *follower) reached(h *store.Head) bool {
	return f.at == h.Last && f.seq == h.Sequence && f.hash == h.Hash
}

// anchor starts the follower at the beginning of an entity's records.
func (f *follower) anchor(c *store.Cut) {
	f.started = true
	if c != nil {
		f.at, f.seq, f.hash = c.Last, c.Sequence, c.Hash
	}
}

// begin starts the follower for a reading from a sequence on; what was cut is
// an error.
func (f *follower) begin(c *store.Cut, from journal.Sequence) error {
	f.from = from
	switch {
	case c != nil && from < c.Sequence:
		return &journal.CutError{First: c.Sequence + 1}
	case from == 0 || c != nil && from == c.Sequence:
		f.anchor(c)
	}
	return nil
}
