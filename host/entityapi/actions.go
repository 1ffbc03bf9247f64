package entityapi

import (
	"slices"
	"strings"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/journal"
)

// shownActions bounds what is told of what operators did to an entity.
const shownActions = 16

// actions are what operators did to an entity beside its commands, as its
// records tell. They are in its history like everything else, on every replica.
type actions struct {
	found   []AdminAction // the oldest first
	scratch []byte
}

// look takes note of a record that an operator's request made.
func (a *actions) look(r *journal.Record) {
	action := AdminAction{Command: r.CommandID, RecordedAt: r.RecordedAt, Sequence: r.Last()}
	switch {
	case r.Flags&journal.FlagTombstone != 0 && a.made(r, entity.DeleteAction):
		action.Kind = ActionDelete
	case len(r.Events) == 0 && len(r.Sections) > 0:
		for _, s := range r.Sections {
			if s.Kind != journal.SectionTimers {
				continue
			}
			op, rest, err := journal.NextTimerOp(s.Data)
			if err == nil && len(rest) == 0 && op.Cancel && a.made(r, entity.SkipTimerAction+string(op.Name)) {
				action.Kind, action.Timer = ActionSkipTimer, string(op.Name)
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

// made reports that a record is that of a request which is remembered under
// this name.
func (a *actions) made(r *journal.Record, name string) bool {
	var hash uint64
	hash, a.scratch = journal.HashCommand(a.scratch, name, nil)
	return r.CommandHash == hash
}

// newestFirst returns what was found.
func (a *actions) newestFirst() []AdminAction {
	slices.Reverse(a.found)
	return a.found
}

// passivateAction is what an operator's request is called that lets an entity
// leave memory. Its command id says so.
const passivateAction = "passivate"

// actionOf is what an operator ordered with a record, and of which timer; empty
// where a client made it.
func actionOf(r *journal.Record) (action, timer string) {
	var a actions
	if len(r.Events) == 0 && r.Flags&journal.FlagServerID != 0 && r.Flags&journal.FlagStopped != 0 && strings.HasPrefix(string(r.CommandID), passivateAction+"-") {
		return passivateAction, ""
	}
	if a.made(r, entity.DeleteAction) {
		return ActionDelete, ""
	}
	if a.look(r); len(a.found) > 0 {
		return a.found[0].Kind, a.found[0].Timer
	}
	return "", ""
}
