package history

import (
	"errors"
	"fmt"
)

// Event is one event of an entity, as the cluster returns it.
type Event struct {
	Sequence  uint64
	Type      string
	CommandID string
	Data      []byte
}

// maxFaults bounds the number of faults reported for one entity.
const maxFaults = 20

// faults collects the faults of one entity.
type faults struct {
	entity Entity
	errs   []error
}

func (f *faults) add(format string, args ...any) {
	if len(f.errs) < maxFaults {
		f.errs = append(f.errs, fmt.Errorf("%s: "+format, append([]any{f.entity}, args...)...))
	}
}

// CheckEvents compares an entity's events with the answers that its callers
// received:
//
//   - sequences are 1..n without a gap;
//   - each acknowledged command occurs once, with the acknowledged number of
//     events, and its reply is the state after them;
//   - no command occurs twice, no command occurs that only failed, and no
//     command occurs that nobody sent;
//   - all acknowledgements of one command are the same, and each
//     acknowledgement after the first is marked as a duplicate.
//
// It returns the reply of a query on the state after all events, and stores the
// order of the events for Linearizable.
func (h *History) CheckEvents(e Entity, events []Event) (now string, err error) {
	f := &faults{entity: e}
	first := checkReplies(f, h.Attempts(e))
	states, at := fold(f, events)
	h.settle(e, at)
	for id, a := range first {
		end, there := at[id]
		switch {
		case a.Outcome == OK && a.EventCount == 0:
			if there {
				f.add("command %s was acknowledged without an event and is event %d", id, end)
			}
			if a.Sequence >= uint64(len(states)) {
				f.add("command %s was acknowledged at sequence %d, the last event is %d", id, a.Sequence, len(events))
			}
		case a.Outcome == OK && !there:
			f.add("LOST: command %s was acknowledged at sequence %d and is not among %d events", id, a.Sequence, len(events))
		case a.Outcome == OK && end != a.Sequence:
			f.add("command %s was acknowledged at sequence %d and is event %d", id, a.Sequence, end)
		case (a.Outcome == Failed || a.Outcome == Rejected) && there:
			f.add("command %s %s (%s) and is event %d", id, a.Outcome, a.Code, end)
		}
		if a.Outcome == OK && a.Sequence < uint64(len(states)) {
			if want := states[a.Sequence].reply(e.Type); a.Reply != want {
				f.add("command %s was answered %s at sequence %d, the events make %s", id, a.Reply, a.Sequence, want)
			}
		}
	}
	for id, end := range at {
		if _, sent := first[id]; !sent {
			f.add("event %d is of command %q, which nobody sent", end, id)
		}
	}
	return states[len(states)-1].reply(e.Type), errors.Join(f.errs...)
}

// checkReplies returns one attempt for each command: its first acknowledgement
// or, if it was never acknowledged, its first attempt with an unknown outcome.
func checkReplies(f *faults, attempts []Attempt) map[string]Attempt {
	first := map[string]Attempt{}
	for _, a := range attempts {
		if a.Query {
			continue
		}
		known, seen := first[a.CommandID]
		if !seen || a.Outcome == OK && (known.Outcome != OK || a.End < known.End) || a.Outcome == Unknown && known.Outcome != OK {
			first[a.CommandID] = a
		}
	}
	for _, a := range attempts {
		known := first[a.CommandID]
		if a.Query || a.Outcome == Unknown || known.Outcome != OK {
			continue
		}
		switch {
		case a.Outcome == OK && (a.Reply != known.Reply || a.Sequence != known.Sequence || a.EventCount != known.EventCount):
			f.add("command %s has two outcomes:\n  %s\n  %s", a.CommandID, known, a)
		case a.Outcome == OK && !a.Duplicate && a.Start > known.End:
			f.add("command %s was carried out again:\n  %s\n  %s", a.CommandID, known, a)
		case a.Outcome == Rejected && a.Start > known.End:
			f.add("command %s was rejected after it was acknowledged:\n  %s\n  %s", a.CommandID, known, a)
		}
	}
	return first
}

// fold replays events. It returns the states before and after each event, and
// the sequence of each command.
func fold(f *faults, events []Event) ([]state, map[string]uint64) {
	states, at := make([]state, 1, len(events)+1), map[string]uint64{}
	for i, e := range events {
		if e.Sequence != uint64(i+1) {
			f.add("event %d has sequence %d", i+1, e.Sequence)
		}
		if other, twice := at[e.CommandID]; twice {
			f.add("command %s took effect twice, as events %d and %d", e.CommandID, other, i+1)
		}
		at[e.CommandID] = uint64(i + 1)
		content, err := parseEvent(e.Type, e.Data)
		if err != nil {
			f.add("event %d: %v", i+1, err)
		}
		if content.commandID != "" && content.commandID != e.CommandID {
			f.add("event %d of command %q holds the id %q", i+1, e.CommandID, content.commandID)
		}
		content.commandID = e.CommandID
		next, err := states[i].apply(f.entity.Type, content)
		if err != nil {
			f.add("event %d: %v", i+1, err)
		}
		states = append(states, next)
	}
	return states, at
}
