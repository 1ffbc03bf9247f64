package host

import (
	"slices"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
)

// shownActs bounds what is told of what persons did to an entity.
const shownActs = 16

// acts are what persons did to an entity beside its commands, as its records
// tell. They are in its history like everything else, on every replica.
type acts struct {
	found   []rpc.Act // the oldest first
	scratch []byte
}

// look takes note of a record that a person's request made.
func (a *acts) look(r *journal.Record) {
	act := rpc.Act{Command: r.CommandID, RecordedAt: r.RecordedAt, Sequence: r.Last()}
	switch {
	case r.Flags&journal.FlagTombstone != 0 && a.made(r, entity.DeleteAct):
		act.Kind = rpc.ActDelete
	case len(r.Events) == 0 && len(r.Sections) > 0:
		for _, s := range r.Sections {
			if s.Kind != journal.SectionTimers {
				continue
			}
			op, rest, err := journal.NextTimerOp(s.Data)
			if err == nil && len(rest) == 0 && op.Cancel && a.made(r, entity.SkipTimerAct+string(op.Name)) {
				act.Kind, act.Timer = rpc.ActSkipTimer, string(op.Name)
			}
		}
	}
	if act.Kind == "" {
		return
	}
	if len(a.found) == shownActs {
		a.found = slices.Delete(a.found, 0, 1)
	}
	a.found = append(a.found, act)
}

// made reports that a record is that of a request which is remembered under
// this name.
func (a *acts) made(r *journal.Record, name string) bool {
	var hash uint64
	hash, a.scratch = journal.HashCommand(a.scratch, name, nil)
	return r.CommandHash == hash
}

// newestFirst returns what was found.
func (a *acts) newestFirst() []rpc.Act {
	slices.Reverse(a.found)
	return a.found
}
