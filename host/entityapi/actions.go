package entityapi

import (
	"slices"
	"strings"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/journal"
)

// shownActions limits the operator actions that are reported for an entity.
const shownActions = 16

// actions collects the operator actions on an entity, except commands. They are
// recorded in the entity's history, so every replica has them.
type actions struct {
	found   []AdminAction // actions found, oldest first
	scratch []byte
}

// look adds the action of a record, if an operator's request made the record.
func (a *actions) look(r *journal.Record) {
	action := AdminAction{Command: r.CommandID, RecordedAt: r.RecordedAt, Sequence: r.Last()}
	switch {
	case r.Flags&journal.FlagTombstone != 0 && a.isMadeBy(r, entity.DeleteAction):
		action.Kind = actionDelete
	case len(r.Events) == 0 && len(r.Sections) > 0:
		for _, s := range r.Sections {
			if s.Kind != journal.SectionTimers {
				continue
			}
			op, rest, err := journal.NextTimerOp(s.Data)
			if err == nil && len(rest) == 0 && op.Cancel && a.isMadeBy(r, entity.SkipTimerAction+string(op.Name)) {
				action.Kind, action.Timer = actionSkipTimer, string(op.Name)
			}
		}
	}
	if action.Kind == "" {
		return
	}
	if len(a.found) == shownActions {
		a.found = slices.Delete(a.found, 0, 1)
	}
	a.found = append(a.found, action)
}

// isMadeBy reports whether the record was made by an operator's request with
// this name, judged by the record's command hash.
func (a *actions) isMadeBy(r *journal.Record, name string) bool {
	var hash uint64
	hash, a.scratch = journal.HashCommand(a.scratch, name, nil)
	return r.CommandHash == hash
}

// newestFirst returns the collected actions, newest first.
func (a *actions) newestFirst() []AdminAction {
	slices.Reverse(a.found)
	return a.found
}

// passivateAction is the prefix of the command id of an operator's request to
// remove an entity from memory.
const passivateAction = "passivate"

// actionOf returns the operator action that made a record, and the name of
// the timer that it skipped, if any. It returns "" if a client made the
// record.
func actionOf(r *journal.Record) (action, timer string) {
	var a actions
	if len(r.Events) == 0 && r.Flags&journal.FlagServerID != 0 && r.Flags&journal.FlagStopped != 0 && strings.HasPrefix(string(r.CommandID), passivateAction+"-") {
		return passivateAction, ""
	}
	if a.isMadeBy(r, entity.DeleteAction) {
		return actionDelete, ""
	}
	if a.look(r); len(a.found) > 0 {
		return a.found[0].Kind, a.found[0].Timer
	}
	return "", ""
}
