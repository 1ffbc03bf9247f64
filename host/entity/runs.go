package entity

import (
	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// The entity row of a run has its status, so that runs can be listed without
// their modules. Whether a run is open follows from its events, which decide
// for replays too; the module only reports how far the run is.

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
		s.State, s.Code = journal.RunFailed, end.Code[:min(len(end.Code), abi.MaxNameBytes)]
	}
	return s
}
