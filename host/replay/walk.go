package replay

import (
	"bytes"
	"context"
	"errors"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// folder makes a state of a history: what begins it, and each event in its
// turn.
type folder interface {
	// start makes the state of a sequence: the one given, or the initial one where
	// that has no bytes. Events that were added and not flushed are forgotten.
	start(ctx context.Context, id sharding.EntityID, at journal.Sequence, from given) error
	// add takes the next event, whose payload it does not keep. The guest may get
	// it later.
	add(ctx context.Context, e event) error
	// flush has the guest get what was added.
	flush() error
}

// given is a state that a folder begins with: nil bytes are none.
type given struct {
	state   []byte
	version int // of a durable type's; 0: the module's own
}

// givenBy is the durable state of an event.
func givenBy(eventType string, state []byte) given {
	return given{state, manifest.StateEventVersion(eventType)}
}

// event is one of a history, or the end of a life.
type event struct {
	sequence   journal.Sequence
	recordedAt int64 // unix nanoseconds
	name       string
	payload    []byte
}

var (
	// errDone ends the reading of a history.
	errDone = errors.New("the state is there")
	// errCut: of the life that the state belongs to not all events are
	// there, and no snapshot before it.
	errCut = errors.New("the events of the state were cut")
)

// walk takes the history of one entity to a folder, event by event. It is the
// only way through a history: what differs is who folds, and what is looked at.
type walk struct {
	id      sharding.EntityID
	to      folder
	durable bool // an event is the whole state: the last one alone is folded
	// look, where it is set, sees each event before it is folded.
	look func(r *journal.Record, i int) error

	at     journal.Sequence // of the last event that was taken
	events uint64           // that were taken
	state  given            // of a durable type, not yet folded
	held   bool             // there is one
}

// read folds the events after from up to end, which were committed. Where the
// first of them were cut, those of a life that begins after the cut are all
// there; else it is errCut.
func (w *walk) read(ctx context.Context, m *eventlog.Machine, shard sharding.ShardID, from, end journal.Sequence) error {
	if w.at = from; from >= end {
		return nil
	}
	if w.durable {
		from = end - 1
	}
	missing := false // the first events of the life that is read
	records := func(_ journal.Position, r *journal.Record) error {
		for i := range r.Events {
			sequence := r.Expected + journal.Sequence(i) + 1
			if sequence > end {
				return errDone
			}
			if sequence <= from || missing || r.Tombstone(i) {
				continue
			}
			w.at = sequence
			if w.look != nil {
				if err := w.look(r, i); err != nil {
					return err
				}
			}
			if err := w.take(ctx, event{sequence, r.RecordedAt, r.Events[i].Type, r.Events[i].Payload}); err != nil {
				return err
			}
		}
		if r.Flags&journal.FlagTombstone == 0 || r.Last() > end || r.Last() <= from {
			return ctx.Err()
		}
		missing = false
		return w.endLife(ctx, r.Last())
	}
	err := m.Read(ctx, shard, w.id, from+1, records)
	if cut := (*journal.CutError)(nil); errors.As(err, &cut) {
		missing = true
		err = m.Read(ctx, shard, w.id, cut.First, records)
		missing = missing || errors.As(err, &cut) // more was cut meanwhile
	}
	switch {
	case missing && (err == nil || errors.Is(err, errDone) || errors.As(err, new(*journal.CutError))):
		return errCut
	case err != nil && !errors.Is(err, errDone):
		return err
	}
	return w.settle(ctx)
}

// take folds the next event, sooner or later.
func (w *walk) take(ctx context.Context, e event) error {
	w.at = e.sequence
	w.events++
	if w.durable {
		w.state, w.held = givenBy(e.name, append(w.state.state[:0], e.payload...)), true
		return nil
	}
	return w.to.add(ctx, e)
}

// endLife begins with the initial state behind a tombstone.
func (w *walk) endLife(ctx context.Context, at journal.Sequence) error {
	if err := w.settle(ctx); err != nil {
		return err
	}
	w.at = at
	return w.to.start(ctx, w.id, at, given{})
}

// settle has the folder be at the last event.
func (w *walk) settle(ctx context.Context) error {
	if !w.held {
		return w.to.flush()
	}
	w.held = false
	return w.to.start(ctx, w.id, w.at, given{bytes.Clone(w.state.state), w.state.version})
}
