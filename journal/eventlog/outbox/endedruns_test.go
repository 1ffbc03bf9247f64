package outbox_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal"
)

// The model of this file answers one question: may the destination of messages
// forget which messages it has accepted, once their source has ended?
//
// Runs of a shard send messages to one entity. Each run is an incarnation of an
// id, and an id is used again after its run has ended. Messages are numbered by
// incarnation. They stay in the outbox until an acknowledgement arrives, and
// any message that was dispatched, any acknowledgement and any notice that a
// run has ended may arrive at any later time, any number of times and in any
// order. This rule covers retries, two dispatchers after a change of leaders,
// moves of either shard, and replicas that begin from a snapshot, because only
// the committed states of the two shards remain after these events. The search
// visits all reachable states within the bounds below.
const (
	modelRuns     = 3 // number of incarnations; 0 and 2 have the same id
	modelMessages = 2 // number of messages that a run sends
	modelFences   = modelRuns + 1
)

// forgetting is a rule by which the destination forgets a run.
type forgetting uint8

const (
	// keepsRows never forgets.
	keepsRows forgetting = iota
	// dropsAtEnd drops the row of a run once the run's shard says that the run
	// has ended.
	dropsAtEnd
	// dropsWhenEmpty drops the row once the run's shard also says that the
	// run's outbox is empty.
	dropsWhenEmpty
	// dropsBelowFloor drops the rows of all runs below a number, once their shard
	// says that all of these runs have ended with empty outboxes. Messages of runs
	// below the number are duplicates.
	dropsBelowFloor
	// dropsAndFences is like dropsWhenEmpty, and counts the dropped rows. If a run
	// has no row, its first message is accepted only if it carries the current
	// count and its source found the message in the outbox after learning that
	// count.
	dropsAndFences
	// fencesLate is like dropsAndFences, but the source may learn the count after
	// it has read the message from its outbox.
	fencesLate
)

func (r forgetting) isFenced() bool { return r == dropsAndFences || r == fencesLate }

// modelState is the committed state of both shards and all that may still arrive.
type modelState struct {
	begun  uint8
	open   [modelRuns]bool
	sent   [modelRuns]uint8
	outbox [modelRuns][modelMessages]bool
	row    [modelRuns]uint8 // highest number accepted; 0 if there is no row
	floor  uint8
	drops  uint8

	dispatched [modelRuns][modelMessages][modelFences]bool
	accepted   [modelRuns][modelMessages]bool // acknowledgements that may arrive
	ended      [modelRuns]bool                // end notices that may arrive
	below      uint8                          // floor of the notice that may arrive

	effects [modelRuns][modelMessages]uint8
}

// isOver reports whether a run has ended with an empty outbox.
func (s *modelState) isOver(run int) bool {
	return int(s.begun) > run && !s.open[run] && s.outbox[run] == [modelMessages]bool{}
}

// deliver lets a dispatched message arrive.
func (s *modelState) deliver(rule forgetting, run, n, fence int) {
	if rule == dropsBelowFloor && run < int(s.floor) {
		s.accepted[run][n] = true
		return
	}
	if rule.isFenced() && s.row[run] == 0 && fence != int(s.drops) {
		return
	}
	message := journal.MessageSource{Number: uint64(n) + 1, After: uint64(n)}
	switch {
	case message.Number <= uint64(s.row[run]):
		s.accepted[run][n] = true
	case message.InTurn(uint64(s.row[run])):
		s.row[run]++
		s.effects[run][n]++
		s.accepted[run][n] = true
	}
}

// next calls visit with each state that can follow.
func (s *modelState) next(rule forgetting, visit func(what string, next modelState)) {
	if b := int(s.begun); b < modelRuns && (b < 2 || !s.open[b-2]) {
		n := *s
		n.begun++
		n.open[b] = true
		visit(fmt.Sprintf("run %d begins", b), n)
	}
	for run := range int(s.begun) {
		if s.open[run] {
			n := *s
			n.open[run] = false
			visit(fmt.Sprintf("run %d ends", run), n)
		}
		if k := s.sent[run]; s.open[run] && k < modelMessages {
			n := *s
			n.sent[run]++
			n.outbox[run][k] = true
			visit(fmt.Sprintf("run %d sends message %d", run, k+1), n)
		}
		for m := range modelMessages {
			for fence := range modelFences {
				looked := s.outbox[run][m] || rule == fencesLate && s.dispatched[run][m] != [modelFences]bool{}
				if looked && !s.dispatched[run][m][fence] && (fence == 0 || rule.isFenced() && fence <= int(s.drops)) {
					n := *s
					n.dispatched[run][m][fence] = true
					visit(fmt.Sprintf("message %d of run %d is dispatched with count %d", m+1, run, fence), n)
				}
				if s.dispatched[run][m][fence] {
					n := *s
					if n.deliver(rule, run, m, fence); n != *s {
						visit(fmt.Sprintf("message %d of run %d arrives", m+1, run), n)
					}
				}
			}
			if s.accepted[run][m] && s.outbox[run][m] {
				n := *s
				n.outbox[run][m] = false
				visit(fmt.Sprintf("message %d of run %d is acknowledged", m+1, run), n)
			}
		}
		if over := s.isOver(run) || rule == dropsAtEnd && !s.open[run]; over && !s.ended[run] && rule != keepsRows && rule != dropsBelowFloor {
			n := *s
			n.ended[run] = true
			visit(fmt.Sprintf("the shard says that run %d has ended", run), n)
		}
		if s.ended[run] && s.row[run] > 0 {
			n := *s
			n.drop(run)
			visit(fmt.Sprintf("the row of run %d is dropped", run), n)
		}
	}
	if rule == dropsBelowFloor {
		n := *s
		for int(n.below) < modelRuns && s.isOver(int(n.below)) {
			n.below++
		}
		if n != *s {
			visit(fmt.Sprintf("the shard says that all runs below %d have ended", n.below), n)
		}
		if s.floor < s.below {
			n := *s
			n.floor = n.below
			for run := range int(n.floor) {
				n.row[run] = 0
			}
			visit(fmt.Sprintf("the rows of runs below %d are dropped", n.floor), n)
		}
	}
}

func (s *modelState) drop(run int) {
	s.row[run] = 0
	s.drops = min(s.drops+1, modelFences-1)
}

// wrong describes the violation in a state; it returns "" if there is none.
func (s *modelState) wrong(rule forgetting) string {
	for run := range modelRuns {
		for m := range modelMessages {
			switch sent := int(s.sent[run]) > m; {
			case s.effects[run][m] > 1:
				return fmt.Sprintf("message %d of run %d takes effect twice", m+1, run)
			case s.effects[run][m] > 0 && m > 0 && s.effects[run][m-1] == 0:
				return fmt.Sprintf("message %d of run %d overtakes another", m+1, run)
			case sent && !s.outbox[run][m] && s.effects[run][m] == 0:
				return fmt.Sprintf("message %d of run %d is lost", m+1, run)
			}
		}
		for m := range modelMessages {
			if !s.outbox[run][m] {
				continue
			}
			n := *s // a message can be delivered at any time
			n.deliver(rule, run, m, int(s.drops))
			if !n.accepted[run][m] {
				return fmt.Sprintf("message %d of run %d can never be delivered", m+1, run)
			}
			break
		}
	}
	return ""
}

// search visits all reachable states. It returns their number, the shortest
// history that ends in a wrong state, and the highest number of rows that are
// left when nothing can happen any more.
func search(rule forgetting) (states int, wrong []string, left int) {
	type origin struct {
		from modelState
		what string
	}
	known := map[modelState]origin{{}: {}}
	for queue := []modelState{{}}; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		if what := s.wrong(rule); what != "" {
			wrong = append(wrong, what)
			for s != (modelState{}) {
				o := known[s]
				wrong = append(wrong, o.what)
				s = o.from
			}
			slices.Reverse(wrong)
			return len(known), wrong, left
		}
		last := true
		s.next(rule, func(what string, n modelState) {
			last = false
			if _, seen := known[n]; !seen {
				known[n] = origin{s, what}
				queue = append(queue, n)
			}
		})
		if last {
			rows := 0
			for _, highest := range s.row {
				rows += int(min(highest, 1))
			}
			left = max(left, rows)
		}
	}
	return len(known), nil, left
}

// TestForgettingEndedRuns searches all states of the model under each rule. It
// is wrong to drop a row when the run has ended and its outbox is empty,
// because a copy of a message that arrives later is then taken for the first
// message of a run. The two rules that recognize such a copy are right, and
// leave no row when all runs have ended.
func TestForgettingEndedRuns(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rule  forgetting
		wrong string
		left  int
	}{
		{"keep the rows", keepsRows, "", modelRuns},
		{"drop at the end", dropsAtEnd, "message 1 of run 0 takes effect twice", 0},
		{"drop when the outbox is empty", dropsWhenEmpty, "message 1 of run 0 takes effect twice", 0},
		{"drop below a floor", dropsBelowFloor, "", 0},
		{"drop and fence", dropsAndFences, "", 0},
		{"drop and fence late", fencesLate, "message 1 of run 0 takes effect twice", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			states, history, left := search(tt.rule)
			t.Logf("%d states, %d rows left\n%s", states, left, strings.Join(history, "\n"))
			if got := ""; len(history) > 0 && tt.wrong != "" {
				got = history[len(history)-1]
				if got != tt.wrong {
					t.Errorf("%s, want %s", got, tt.wrong)
				}
				return
			}
			if len(history) > 0 || tt.wrong != "" || left != tt.left {
				t.Errorf("the rule is wrong: %v, want %q; %d rows are left, want %d", history, tt.wrong, left, tt.left)
			}
		})
	}
}
