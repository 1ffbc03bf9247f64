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

// stateBuilder computes a state from a history: from an initial state and the events
// in order.
type stateBuilder interface {
	// start sets the state at a sequence: the given state, or the initial state
	// if the given one has no bytes. Events that were added and not flushed are
	// discarded.
	start(ctx context.Context, id sharding.EntityID, at journal.Sequence, from given) error
	// add passes on the next event and does not keep its payload. The guest may get
	// the event later.
	add(ctx context.Context, e event) error
	// flush passes the added events to the guest.
	flush() error
}

// given is a state that a stateBuilder begins with. nil bytes mean none.
type given struct {
	state   []byte
	version int // state version; 0: the module's own
}

// givenBy returns the durable state in an event.
func givenBy(eventType string, state []byte) given {
	return given{state, manifest.StateEventVersion(eventType)}
}

// event is an event of a history.
type event struct {
	sequence   journal.Sequence
	recordedAt int64 // unix nanoseconds
	name       string
	payload    []byte
}

var (
	// errDone ends the reading of a history early.
	errDone = errors.New("the state was found")
	// errTruncated: some events of the current life are gone, and there is no
	// snapshot before the first remaining event.
	errTruncated = errors.New("the events of the state were truncated")
)

// walk passes the history of one entity to a stateBuilder, event by event. All
// reading of histories goes through it; callers differ only in the stateBuilder
// and in look.
type walk struct {
	id      sharding.EntityID
	to      stateBuilder
	durable bool // an event holds the whole state, so only the last event is used
	// look, if set, sees each event before it is added.
	look func(r *journal.Record, i int) error

	at     journal.Sequence // sequence of the last event taken
	events uint64           // number of events taken
	state  given            // state of a durable type, not yet passed to the stateBuilder
	held   bool             // state is set
}

// read passes the committed events after from, up to end, to the
// stateBuilder. If the first of them were truncated, it continues with the
// first life that begins after the truncation, because all events of that
// life are retained. If no life begins there, the error is errTruncated.
func (w *walk) read(ctx context.Context, m *eventlog.Machine, shard sharding.ShardID, from, end journal.Sequence) error {
	if w.at = from; from >= end {
		return nil
	}
	if w.durable {
		from = end - 1
	}
	missing := false // the first events of the current life
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
	if cut := (*journal.TruncatedError)(nil); errors.As(err, &cut) {
		missing = true
		err = m.Read(ctx, shard, w.id, cut.First, records)
		missing = missing || errors.As(err, &cut) // more was truncated meanwhile
	}
	switch {
	case missing && (err == nil || errors.Is(err, errDone) || errors.As(err, new(*journal.TruncatedError))):
		return errTruncated
	case err != nil && !errors.Is(err, errDone):
		return err
	}
	return w.settle(ctx)
}

// take passes the next event to the stateBuilder. It may keep the event until
// settle.
func (w *walk) take(ctx context.Context, e event) error {
	w.at = e.sequence
	w.events++
	if w.durable {
		w.state, w.held = givenBy(e.name, append(w.state.state[:0], e.payload...)), true
		return nil
	}
	return w.to.add(ctx, e)
}

// endLife starts from the initial state after a tombstone.
func (w *walk) endLife(ctx context.Context, at journal.Sequence) error {
	if err := w.settle(ctx); err != nil {
		return err
	}
	w.at = at
	return w.to.start(ctx, w.id, at, given{})
}

// settle passes all events that were read to the stateBuilder.
func (w *walk) settle(ctx context.Context) error {
	if !w.held {
		return w.to.flush()
	}
	w.held = false
	return w.to.start(ctx, w.id, w.at, given{bytes.Clone(w.state.state), w.state.version})
}
