package entity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// The entity row of a run has its status, so that runs can be listed without
// their modules. The run's events alone determine whether it is open, so a
// replay gets the same result. The module only reports the progress of the run.

// runSection adds the status of a run to the record of a command that has
// events.
func (d *decider) runSection(e *entity) {
	if !e.typ.Workflow || len(d.output.Events) == 0 || d.opts.ClusterVersion() < sharding.VersionWorkflows {
		return
	}
	s := runStatus(&d.output)
	d.record.Section(journal.SectionRun, journal.AppendRunStatus(nil, &s))
}

// runStatus returns the status of a run after the events of an output.
func runStatus(out *abi.Output) journal.RunStatus {
	s := journal.RunStatus{State: journal.RunRunning, Steps: out.Progress.Steps}
	last := &out.Events[len(out.Events)-1]
	if string(last.Type) != abi.RunEnded {
		for _, w := range out.Progress.Waits {
			s.Waits = append(s.Waits, string(w))
		}
		return s
	}
	s.State = journal.RunCompleted
	if end := request.ParseRunEnd(last.Payload); end.Code != "" {
		s.State, s.Code = journal.RunFailed, strings.ToValidUTF8(end.Code[:min(len(end.Code), abi.MaxNameBytes)], "") // drop a character that was cut in half
	}
	return s
}

// answerIdle answers a client's command that changes nothing about a run, and
// reports whether r is such a command. Clients repeat a start to learn the
// result. If each repetition wrote a record with the result, a caller could
// fill the disk. No record remembers the command's id: a retry is decided
// again, as after a rejection.
func (d *decider) answerIdle(e *entity, r *request.Request) bool {
	out := &d.output
	if !e.typ.Workflow || !e.exists || r.Kind != request.Command || timers.Of(r) != nil || len(out.Events)+len(out.Sends)+len(out.Timers) > 0 || out.Delete {
		return false
	}
	if e.extra != nil {
		e.extra.faults.ResetCount()
	}
	r.Result = request.Result{Payload: bytes.Clone(out.Reply), Sequence: e.sequence, Fuel: d.fuel}
	passivate := out.Passivate && !e.typ.Singleton
	e.shard.awaitCommit(r, e.last, true)
	if passivate {
		d.exec.leave(e)
	}
	return true
}

// beginsRun reports whether the output begins a run.
func (d *decider) beginsRun(e *entity) bool {
	return e.typ.Workflow && !e.exists && len(d.output.Events) > 0
}

// codeTooManyRuns is the code of the rejection of a start that would exceed the
// setting max-open-runs.
const codeTooManyRuns = "too_many_runs"

// checkOpenRuns returns an error if the output begins a run and the shard has as
// many open runs of the type as the settings allow. Runs that begin in records
// which are not applied yet do not count, so the limit may be exceeded by as many
// as the shard has in flight.
func (d *decider) checkOpenRuns(e *entity) error {
	if !d.beginsRun(e) {
		return nil
	}
	most := d.opts.Settings.RunLimits(e.id.Type).Open
	if most == 0 {
		return nil
	}
	open, err := d.opts.Histories.OpenRuns(e.shard.id, e.id.Type)
	switch {
	case err != nil:
		return fmt.Errorf("%w: count open runs: %w", request.ErrBusy, err)
	case open >= uint64(most):
		return &request.RejectedError{Code: codeTooManyRuns, Message: fmt.Sprintf("max-open-runs: shard %d has %d open runs of the type, at most %d are allowed", e.shard.id, open, most)}
	}
	return nil
}

// The timer that ends a run whose time is over.
const (
	timerTimeLimit = "hostd-time-limit"
	codeTimeLimit  = "run_time_limit"
)

// limitRun sets the timer that ends a run which begins now after the time that
// the settings allow, and cancels it if the run ends. It needs a module that has
// commandEnd. A later change of the setting concerns only runs that begin then.
func (d *decider) limitRun(e *entity, env Env) {
	out := &d.output
	n := len(out.Events)
	if !e.typ.Workflow || n == 0 || !e.typ.Internal[commandEnd] {
		return
	}
	limit := d.opts.Settings.RunLimits(e.id.Type).Time
	ended := string(out.Events[n-1].Type) == abi.RunEnded
	switch {
	case ended == d.beginsRun(e):
		return
	case ended:
		// The setting may have been removed since the run began.
		if _, added := d.opts.Histories.TimerRoom(e.shard.id, e.id, [][]byte{[]byte(timerTimeLimit)}); added > 0 {
			return
		}
		out.Timers = append(out.Timers, abi.Timer{Name: []byte(timerTimeLimit), Cancel: true})
		return
	case limit == 0:
		return
	}
	at := env.Now + int64(limit)
	out.Timers = append(out.Timers, abi.Timer{Name: []byte(timerTimeLimit), Due: at, Command: []byte(commandEnd), Payload: endPayload(&request.RunEnd{
		Code: codeTimeLimit, Message: fmt.Sprintf("run-time-limit: the run was open for %s", limit)})})
}

// codeTooManySteps is the code of a run whose history is too long. The SDKs use
// it for their own, lower limits.
const codeTooManySteps = "too_many_steps"

// commandEnd is the internal command by which the node lets the module end a
// run: with the event abi.RunEnded, which has the payload of the command, and
// with messages to the run's parent and children, which only the module
// knows. The SDKs define it.
const commandEnd = "hostd-end"

// endOversizedRun ends the run instead of executing a command if the run's
// history since its last checkpoint would exceed a limit of the node. A load
// replays that history, and the SDKs limit it too, but the node does not rely on
// modules.
//
// The guest's state then contains events that are not written, so the entity
// is loaded again. If the module has commandEnd, the request is then decided
// by that command (postponed). If the module has no commandEnd, or if its
// commandEnd does not end the run, the node writes an end event of its own,
// and no other output takes effect (ended).
func (d *decider) endOversizedRun(e *entity, r *request.Request) (ended, postponed bool) {
	out := &d.output
	n := len(out.Events)
	if !e.typ.Workflow || n == 0 || string(out.Events[n-1].Type) == abi.RunEnded || checkpointOf(out) != nil {
		return false, false
	}
	events, size := int(e.replay.Events)+n, int(e.replay.Bytes)+outputBytes(out)
	if events <= d.opts.RunEvents && size <= d.opts.RunBytes {
		return false, false
	}
	end := request.RunEnd{Code: codeTooManySteps, Message: fmt.Sprintf(
		"the node has ended the run: since the last checkpoint its history has %d events and %d bytes, the limits are %d and %d; make checkpoints", events, size, d.opts.RunEvents, d.opts.RunBytes)}
	if e.typ.Internal[commandEnd] && !r.Exec.EndAlone {
		r.Exec.End = &end
		d.decideAfterReload(e, r)
		return false, true
	}
	payload := endPayload(&end)
	progress := out.Progress
	out.Reset()
	out.Progress = progress
	out.Events = append(out.Events, abi.Event{Type: []byte(abi.RunEnded), Payload: payload})
	return true, false
}

// endFailed reports whether a module was asked to end a run and has not done
// so. The request is then decided again, without the module.
func (d *decider) endFailed(e *entity, r *request.Request, err error) bool {
	if r.Exec.End == nil {
		return false
	}
	n := len(d.output.Events)
	if err == nil && !d.output.Rejected && n > 0 && string(d.output.Events[n-1].Type) == abi.RunEnded {
		return false
	}
	r.Exec.End, r.Exec.EndAlone = nil, true
	d.decideAfterReload(e, r)
	return true
}

// decideAfterReload discards the entity's state, which is ahead of its history,
// and decides the request again.
func (d *decider) decideAfterReload(e *entity, r *request.Request) {
	d.exec.reload(e)
	r.Again = true // other requests may be served before it is decided again
	d.exec.dispatch(e.shard, r)
}

// endPayload returns the payload of the event that ends a run.
func endPayload(end *request.RunEnd) []byte {
	payload, err := json.Marshal(end)
	if err != nil {
		panic("entity: " + err.Error()) // impossible for two strings
	}
	return payload
}
