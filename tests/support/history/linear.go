package history

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// call is the input of an operation: the command or query and the entity type.
type call struct {
	entityType, name string
	query            bool
	number           int64
	commandID        string
	final            bool // the last query of the history
	seen             *seen
}

// seen is the information about an entity's sequence that all answers in its
// history contain. It bounds the search: without it, the checker would try the
// unknown operations in every order.
type seen struct {
	claimed map[uint64]bool // sequences that acknowledged commands used
	last    uint64          // sequence after every known operation
	final   time.Duration   // start of the last query
	// order is the sequence of each command, read from the events at the end;
	// nil if the events were not read.
	order map[string]uint64
}

// answer is the output of an operation. If the outcome is unknown, any output
// is possible.
type answer struct {
	outcome    Outcome
	code       string
	reply      string
	sequence   uint64
	eventCount int
}

// model describes the example entities as a porcupine model for one entity.
//
// Linearizability is local: a history is linearizable if the history of each
// entity is. Entities are therefore checked one at a time, which keeps each
// search small. Commands with an unknown outcome remain expensive. Their
// operations never end, so the checker may place each of them anywhere or
// nowhere, and the number of orders grows exponentially. Dropping these
// commands from the history is not possible, because later answers contain
// their effects.
//
// The search is bounded by the sequence in each answer (seen):
//
//   - An acknowledged command claims the sequence of its event, so an unknown
//     command can only emit an event that no acknowledged command has emitted.
//   - The last query of the history returns the final sequence. Before it, the
//     events of unknown commands must fill exactly the gaps; after it, commands
//     without an effect may be placed in any order, because none of them changes
//     the state.
//   - If the events were read at the end, the sequence of each command is known,
//     and there is nothing left to search.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, input, output any) (bool, any) {
		return step(before.(state), input.(call), output.(answer))
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// step reports whether the answer is possible in the state, and returns the
// next state.
func step(s state, in call, out answer) (bool, state) {
	if in.query {
		after := s
		after.over = in.final
		return out.sequence == s.sequence && out.reply == s.reply(in.entityType), after
	}
	if out.outcome == Unknown {
		return stepUnknown(s, in)
	}
	emitted, rejection := s.decide(in.entityType, in.name, in.number)
	if out.outcome == Rejected || rejection != "" {
		return out.outcome == Rejected && out.code == rejection, s
	}
	after, events := s.emit(in, emitted)
	return out.sequence == after.sequence && out.eventCount == events && out.reply == after.reply(in.entityType), after
}

// stepUnknown is the step of a command with an unknown outcome.
//
// Its operation never ends. A command without effect can therefore be placed at
// the end, after all known operations. A command with an effect is placed where
// it emits an event that no acknowledged command emitted. If the events were
// read at the end, that place is known; otherwise the checker tries every
// place.
func stepUnknown(s state, in call) (bool, state) {
	if at, found := in.seen.order[in.commandID]; in.seen.order != nil && (!found || at != s.sequence+1) {
		return s.over && !found, s
	}
	if s.over || s.sequence >= in.seen.last || in.seen.claimed[s.sequence+1] {
		return s.over, s
	}
	emitted, _ := s.decide(in.entityType, in.name, in.number)
	after, _ := s.emit(in, emitted)
	return emitted != "", after
}

// emit applies the event that the command emits, if it emits one.
func (s state) emit(in call, emitted string) (after state, events int) {
	if emitted == "" {
		return s, 0
	}
	after, err := s.apply(in.entityType, event{name: emitted, number: in.number, commandID: in.commandID})
	if err != nil {
		panic(err) // the model must know every event that it emits
	}
	return after, 1
}

// operations converts the attempts on one entity into operations. All attempts
// of one command form one operation, because the command takes effect once: the
// operation begins with the first attempt that may have had an effect and ends
// with the first acknowledgement, or never. A rejection is an operation of its
// own, because a rejected command is decided again when it is resent. Attempts
// without an effect are omitted.
//
// The last known operation must be a query that begins after all other
// operations have ended, because it reveals the sequence at the end of the
// history.
func operations(attempts []Attempt, order map[string]uint64) ([]porcupine.Operation, error) {
	s, err := whatIsSeen(attempts)
	if err != nil {
		return nil, err
	}
	s.order = order
	var ops []porcupine.Operation
	add := func(a Attempt, start, end time.Duration) {
		out := answer{a.Outcome, a.Code, a.Reply, a.Sequence, a.EventCount}
		if a.Outcome == Unknown {
			out, end = answer{}, math.MaxInt64
		}
		ops = append(ops, porcupine.Operation{
			Input: call{a.Entity.Type, a.Name, a.Query, a.Number, a.CommandID, a.Query && a.Start == s.final, s}, Output: out, Call: int64(start), Return: int64(end),
		})
	}
	byID := map[string][]Attempt{}
	for _, a := range attempts {
		switch {
		case a.Query && a.Outcome == OK, a.Outcome == Rejected:
			add(a, a.Start, a.End)
		case !a.Query && a.Outcome != Failed:
			byID[a.CommandID] = append(byID[a.CommandID], a)
		}
	}
	for _, same := range byID {
		start, told := same[0].Start, same[0]
		for _, a := range same[1:] {
			start = min(start, a.Start)
			if a.Outcome == OK && (told.Outcome != OK || a.End < told.End) {
				told = a
			}
		}
		add(told, start, told.End)
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	return ops, nil
}

func whatIsSeen(attempts []Attempt) (*seen, error) {
	s := &seen{claimed: map[uint64]bool{}}
	var end time.Duration
	var final *Attempt
	for i, a := range attempts {
		if a.Outcome == Unknown || a.Outcome == Failed {
			continue
		}
		if a.Query {
			if final == nil || a.Start > final.Start {
				final = &attempts[i]
			}
		} else if a.EventCount > 0 {
			s.claimed[a.Sequence] = true
		}
	}
	for i, a := range attempts {
		if &attempts[i] != final && a.Outcome != Unknown && a.Outcome != Failed {
			end = max(end, a.End)
		}
	}
	if final == nil || final.Start <= end {
		return nil, errors.New("no query is made after everything else has ended")
	}
	s.last, s.final = final.Sequence, final.Start
	return s, nil
}

// Linearizable checks that the answers of each entity of the types are possible
// if the entity runs one operation at a time, each between its start and its
// end. It spends at most the time perEntity on one entity, and fails if that is
// not enough. It returns the number of operations that it checked.
//
// If CheckEvents was called for an entity, its events count as an additional
// read at the end, which reveals the outcome of each unknown command. Otherwise
// all possibilities are tried, which is slow if there are many unknown
// commands.
func (h *History) Linearizable(perEntity time.Duration, types ...string) (checked int, err error) {
	for _, e := range h.Entities() {
		if !slices.Contains(types, e.Type) {
			continue
		}
		attempts := h.Attempts(e)
		ops, err := operations(attempts, h.settled(e))
		if err != nil {
			return checked, fmt.Errorf("%s: %w", e, err)
		}
		if verdict := porcupine.CheckOperationsTimeout(model, ops, perEntity); verdict != porcupine.Ok {
			return checked, fmt.Errorf("%s: the verdict on %d operations is %s\n%s%s", e, len(ops), verdict, contradictions(ops), excerpt(attempts))
		}
		checked += len(ops)
	}
	return checked, nil
}

// excerptLines bounds the excerpt of one entity's history in a report.
const excerptLines = 60

func excerpt(attempts []Attempt) string {
	var b strings.Builder
	if more := len(attempts) - excerptLines; more > 0 {
		fmt.Fprintf(&b, "%d more, and\n", more)
		attempts = attempts[more:]
	}
	for _, a := range attempts {
		fmt.Fprintln(&b, a)
	}
	return b.String()
}

// contradictions describes pairs of known operations whose order in the
// entity's sequence contradicts their order in time. Most incorrect histories
// have such a pair, and it is easier to read than the checker's report.
func contradictions(ops []porcupine.Operation) string {
	// Sort the known operations by sequence, and a query after the command whose
	// effect it sees.
	var known []porcupine.Operation
	for _, op := range ops {
		if out := op.Output.(answer); out.outcome == OK && (op.Input.(call).query || out.eventCount > 0) {
			known = append(known, op)
		}
	}
	slices.SortStableFunc(known, func(a, b porcupine.Operation) int {
		return cmp.Or(cmp.Compare(a.Output.(answer).sequence, b.Output.(answer).sequence), cmp.Compare(b.Output.(answer).eventCount, a.Output.(answer).eventCount))
	})
	var b strings.Builder
	for i, late := range known {
		for _, early := range known[i+1:] {
			same := early.Input.(call).query && late.Input.(call).query && early.Output.(answer).sequence == late.Output.(answer).sequence
			if early.Return < late.Call && !same {
				fmt.Fprintf(&b, "%+v -> %+v ended before\n%+v -> %+v began\n", early.Input, early.Output, late.Input, late.Output)
				return b.String()
			}
		}
	}
	return ""
}
