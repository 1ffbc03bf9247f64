package entity

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// runs returns a quiet world whose type is a workflow.
func runs(t *testing.T) *world {
	w := quiet(t)
	w.workflow = true
	w.core.opts.ClusterVersion = maxLevel
	w.handOver()
	return w
}

// messageTo delivers a message of entity s to an entity. hops messages led to it.
func (w *world) messageTo(to, name string, hops uint8) request.Result {
	w.t.Helper()
	between := pair{sharding.EntityID{Type: "tally", ID: "s"}, sharding.EntityID{Type: "tally", ID: to}}
	number := uint64(len(w.messages.all[between]) + 1)
	w.messages.all[between] = append(w.messages.all[between], journal.Message{Source: between.from, Destination: between.to, Number: number, Command: name, Payload: []byte("1")})
	return w.submit(&request.Request{
		Kind: request.Deliver, Entity: between.to, Name: name, Payload: []byte("1"), ID: request.SendCommand(between.from, number), ServerID: true,
		Delivery: &request.Delivery{Source: between.from, Number: number, After: number - 1, Hops: hops},
	})
}

// mustDeliver delivers a message and returns the length of the chain in its
// record.
func (w *world) mustDeliver(to, name string, hops uint8) uint8 {
	w.t.Helper()
	if res := w.messageTo(to, name, hops); res.Err != nil {
		w.t.Fatalf("%s to %s after %d hops: %v", name, to, hops, res.Err)
	}
	source, err := journal.DecodeMessageSource(w.log[len(w.log)-1].Section(journal.SectionSource))
	if err != nil {
		w.t.Fatal(err)
	}
	return source.Hops
}

// TestRunsNestAtMost32Deep checks that a message that would start a run is
// rejected without a guest call if more than 32 messages in a chain led to it.
// An existing run accepts messages at the end of longer chains, and so does an
// entity of another kind.
func TestRunsNestAtMost32Deep(t *testing.T) {
	const depth = 32
	w := runs(t)
	calls := 0
	open := w.typ.Instantiate
	w.typ.Instantiate = func(ctx context.Context) (Guest, error) {
		g, err := open(ctx)
		return counting{g, &calls}, err
	}
	for hops := uint8(depth - 2); hops < depth+2; hops++ {
		calls = 0
		dead, id := len(w.messages.deadLetters), fmt.Sprint("r", hops)
		chain := w.mustDeliver(id, "add", hops)
		last := &w.log[len(w.log)-1]
		if hops < depth {
			if len(last.Events) != 1 || chain != hops+1 || calls != 1 || len(w.messages.deadLetters) != dead {
				t.Errorf("%d hops: %d events, a chain of %d, %d guest calls, %d dead letters more", hops, len(last.Events), chain, calls, len(w.messages.deadLetters)-dead)
			}
			continue
		}
		why, err := journal.DecodeRefusal(last.Section(journal.SectionRefusal))
		if err != nil || string(why.Code) != request.CodeTooDeep || len(last.Events) != 0 || calls != 0 || len(w.messages.deadLetters) != dead+1 || w.head(id).exists {
			t.Errorf("%d hops: the rejection %+v, %v; %d events, %d guest calls, %d dead letters more", hops, why, err, len(last.Events), calls, len(w.messages.deadLetters)-dead)
		}
	}
	if chain := w.mustDeliver(fmt.Sprint("r", depth-1), "add", journal.MaxHops-1); chain != depth || len(w.log[len(w.log)-1].Events) != 1 {
		t.Errorf("a message to a run: a chain of %d, %d events", chain, len(w.log[len(w.log)-1].Events))
	}
	w.workflow = false
	w.handOver()
	if chain := w.mustDeliver("entity", "add", depth); chain != depth+1 || len(w.log[len(w.log)-1].Events) != 1 {
		t.Errorf("a message to an entity of another kind: a chain of %d, %d events", chain, len(w.log[len(w.log)-1].Events))
	}
}

// TestRunsKeepTheChainThatStartedThem checks that the messages of a run
// continue the chain that started the run, whichever message the run handles,
// even after the run was loaded again. A run that a client starts begins new
// chains, even if its id belonged to a deeper run, or if a start of the run
// by a longer chain was rejected before.
func TestRunsKeepTheChainThatStartedThem(t *testing.T) {
	w := runs(t)
	look := func(what, id string, want uint8) {
		t.Helper()
		for _, when := range []string{"in memory", "loaded again"} {
			if chain := w.mustDeliver(id, "add", 40); chain != want {
				t.Errorf("%s, %s: messages begin at %d, want %d", what, when, chain, want)
			}
			w.handOver()
		}
	}
	w.mustDeliver("child", "add", 5)
	look("a run that a message started", "child", 6)
	w.askOf("root", request.Command, "add", "a")
	look("a run that a client started", "root", 0)

	w.mustDeliver("again", "add", 5)
	w.askOf("again", request.Delete, "", "b")
	w.askOf("again", request.Command, "add", "c")
	look("after a deletion", "again", 0)
	w.askOf("again", request.Delete, "", "d")
	w.mustDeliver("again", "add", 7)
	look("after another deletion", "again", 8)

	w.mustDeliver("refused", "add", 32)
	w.askOf("refused", request.Command, "add", "e")
	look("after a rejected start", "refused", 0)
	w.mustDeliver("early", "deny", 7)
	w.mustDeliver("early", "add", 2)
	look("after a rejected message", "early", 3)
}

// TestMessagesToFaultingRunsWait checks that a message to a run whose guest
// faults, in a command or while the run is loaded, fails as for a quarantined
// entity. So it is delivered later and never rejected. A client gets the fault,
// and so does a message to an entity of another kind.
func TestMessagesToFaultingRunsWait(t *testing.T) {
	for _, workflow := range []bool{true, false} {
		w := runs(t)
		w.workflow = workflow
		w.handOver()
		w.core.opts.QuarantineAfterFaults = 1000
		for _, id := range []string{"command", "load"} {
			if id == "load" {
				w.askOf(id, request.Command, "add", "a")
				w.handOver()
				w.poison = id
			}
			records := len(w.log)
			for i := range 5 {
				var fault *request.GuestFaultError
				res := w.submit(&request.Request{
					Kind: request.Deliver, Entity: sharding.EntityID{Type: "tally", ID: id}, Name: "trap", Payload: []byte("1"), ID: "trap", ServerID: true,
					Delivery: &request.Delivery{Source: sharding.EntityID{Type: "tally", ID: "s"}, Number: 1},
				})
				waits := errors.Is(res.Err, request.ErrQuarantined) && !errors.As(res.Err, &fault) && strings.Contains(res.Err.Error(), errTrap.Error())
				if waits != workflow || !workflow && !errors.As(res.Err, &fault) || len(w.log) != records {
					t.Errorf("a workflow: %v; message %d of a fault in a %s: %v, %d records more", workflow, i, id, res.Err, len(w.log)-records)
				}
				if res := w.askOf(id, request.Command, "trap", fmt.Sprint("c", i)); !errors.As(res.Err, &fault) {
					t.Errorf("a workflow: %v; a client's command after a fault in a %s: %v", workflow, id, res.Err)
				}
			}
			if info := w.askOf(id, request.Inspect, "", "").Info; info.Faults != 10 {
				t.Errorf("a workflow: %v; %d faults in a %s are counted, want 10", workflow, info.Faults, id)
			}
		}
	}
}

// TestStrayOutcomesCreateNoRuns delivers a message whose command makes no event,
// such as the outcome of a call of a run that was deleted. No run exists
// afterwards, and the message counts as delivered. A run that exists stays, and
// so does an entity of another kind.
func TestStrayOutcomesCreateNoRuns(t *testing.T) {
	w := runs(t)
	silent := func(id string) {
		t.Helper()
		w.mustDeliver(id, "note", 0)
		if last := &w.log[len(w.log)-1]; last.Entity.ID != id || len(last.Events) != 0 {
			t.Fatalf("%s: the last record is of %s, with %d events", id, last.Entity.ID, len(last.Events))
		}
	}
	for _, when := range []string{"never existed", "is loaded again"} {
		if silent("none"); w.head("none").exists {
			t.Errorf("a message without events to a run that %s has created one", when)
		}
		w.handOver()
	}
	w.askOf("run", request.Command, "add", "a")
	if silent("run"); !w.head("run").exists {
		t.Error("a message without events has deleted a run")
	}
	w.workflow = false
	w.handOver()
	if silent("entity"); !w.head("entity").exists {
		t.Error("an entity of another kind does not exist after a command without events")
	}
}

// TestCommandsWithoutEffectAreNotRecorded checks that a client's command that
// changes nothing about a run, such as a repeated start, is answered without
// a record. The answer waits until everything that the command saw is
// committed and the leadership is confirmed. A message without events is
// recorded, and so is such a command to an entity of another kind.
func TestCommandsWithoutEffectAreNotRecorded(t *testing.T) {
	w := runs(t)
	w.askOf("run", request.Command, "add", "a")
	records := len(w.log)
	for i := range 3 {
		rounds := w.core.shards[worldShard].rounds
		res := w.askOf("run", request.Command, "note", fmt.Sprint("n", i%2))
		if res.Err != nil || string(res.Payload) != "1" || res.Sequence != 1 || res.EventCount != 0 || res.Duplicate {
			t.Errorf("command %d: %+v", i, res)
		}
		if w.core.shards[worldShard].rounds == rounds {
			t.Errorf("command %d is answered without a confirmed leadership", i)
		}
	}
	if n := len(w.log) - records; n != 0 {
		t.Errorf("%d records of commands without effect", n)
	}
	if w.mustDeliver("run", "note", 0); len(w.log) != records+1 {
		t.Errorf("a message without events has %d records", len(w.log)-records)
	}
	w.workflow = false
	w.handOver()
	if w.askOf("entity", request.Command, "note", "b"); len(w.log) != records+2 {
		t.Error("a command of another kind of entity is not recorded")
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}

// TestRecordsOfRunsHaveTheirStatus checks that the record of a command that has
// events keeps the status that the module reports, and that the events decide
// whether the run is open. Below the cluster version of workflows no record has
// a status.
func TestRecordsOfRunsHaveTheirStatus(t *testing.T) {
	event := func(typ, payload string) []abi.Event {
		return []abi.Event{{Type: []byte("asked")}, {Type: []byte(typ), Payload: []byte(payload)}}
	}
	progress := abi.Progress{Steps: 3, Waits: [][]byte{[]byte("sleep")}}
	for _, tt := range []struct {
		events []abi.Event
		want   journal.RunStatus
	}{
		{event("came", "{}"), journal.RunStatus{State: journal.RunRunning, Steps: 3, Waits: []string{"sleep"}}},
		{event("ended", `{"result":{"code":1}}`), journal.RunStatus{State: journal.RunCompleted, Steps: 3}},
		{event("ended", `{"code":"broken","message":"m"}`), journal.RunStatus{State: journal.RunFailed, Steps: 3, Code: "broken"}},
		{event("ended", `x`), journal.RunStatus{State: journal.RunFailed, Steps: 3, Code: request.CodeInvalidOutput}},
		{event("ended", `{"code":"`+strings.Repeat("x", 300)+`"}`), journal.RunStatus{State: journal.RunFailed, Steps: 3, Code: strings.Repeat("x", abi.MaxNameBytes)}},
		{event("ended", `{"code":"`+strings.Repeat("é", 300)+`"}`), journal.RunStatus{State: journal.RunFailed, Steps: 3, Code: strings.Repeat("é", abi.MaxNameBytes/2)}},
	} {
		if got := runStatus(&abi.Output{Events: tt.events, Progress: progress}); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.events[1].Payload, got, tt.want)
		}
	}
	for _, level := range []sharding.ClusterVersion{sharding.VersionWorkflows - 1, sharding.VersionWorkflows} {
		w := runs(t)
		w.core.opts.ClusterVersion = func() sharding.ClusterVersion { return level }
		if res := w.askOf("r", request.Command, "add", "c1"); res.Err != nil {
			t.Fatal(res.Err)
		}
		data := w.log[len(w.log)-1].Section(journal.SectionRun)
		if has := data != nil; has != (level >= sharding.VersionWorkflows) {
			t.Errorf("at cluster version %d the record has a status: %v", level, has)
		}
	}
}

// TestRunsLoadFromCheckpoints checks that a run is loaded from its last
// checkpoint, by any module, even if the events before it are gone, and without
// asking the guest for a snapshot. The run keeps its idempotency window and the
// length of the chain that started it. A checkpoint counts as an ordinary event
// if it is not the last event of its record, or if the entity is of another
// kind.
func TestRunsLoadFromCheckpoints(t *testing.T) {
	w := runs(t)
	w.noSnapshot = true // a guest that is asked for a snapshot fails
	w.retain = 1
	w.handOver()
	w.mustDeliver("x", "add", 5)
	for i := range 3 {
		w.ask(request.Command, "add", fmt.Sprint("a", i))
	}
	w.ask(request.Command, "checkpoint", "first")
	w.ask(request.Command, "add", "b")
	w.ask(request.Command, "checkpoint", "second")
	w.ask(request.Command, "add", "c")
	snaps := w.snaps["x"]
	if len(snaps) != 2 || !snaps[1].Checkpoint || snaps[1].Sequence != 7 || snaps[1].Module != journal.NoModule || snaps[1].Chain != 6 || snaps[1].Retain != 1 || string(snaps[1].State) != "5" {
		t.Fatalf("%+v", snaps)
	}
	for _, when := range []string{"the module that made it", "another module", "a truncated history"} {
		switch when {
		case "another module":
			w.serve(w.newest + 2)
			w.core.event(&coreEvent{Kind: eventActivationsChanged})
		case "a truncated history":
			w.cuts = map[string]journal.Sequence{"x": snaps[1].CutBefore(snaps[1].Window)}
		}
		loads := w.core.stats.SnapshotLoads
		w.handOver()
		if chain := w.mustDeliver("x", "note", 40); chain != 6 {
			t.Errorf("%s: a chain of %d", when, chain)
		}
		if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "6" || w.core.stats.SnapshotLoads != loads+1 {
			t.Errorf("%s: %q, %v, %d loads from a checkpoint", when, res.Payload, res.Err, w.core.stats.SnapshotLoads-loads)
		}
		if res := w.ask(request.Command, "add", "b"); !res.Duplicate || string(res.Payload) != "5" {
			t.Errorf("%s: a command from before the checkpoint: %+v", when, res)
		}
	}
	w.workflow, w.noSnapshot = false, false
	w.handOver()
	w.askOf("entity", request.Command, "checkpoint", "d")
	if len(w.snaps["entity"]) != 0 {
		t.Errorf("an entity of another kind has a checkpoint: %+v", w.snaps["entity"])
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}

// TestOversizedRunsAreEnded checks that a command that would take the history
// of a run over a limit ends the run instead. Nothing else of its output
// takes effect, the sender of a message gets its outcome, and the state in
// memory is the state that the history gives. A checkpoint restarts the
// count, and other entities have no limit.
func TestOversizedRunsAreEnded(t *testing.T) {
	w := runs(t)
	w.core.opts.RunEvents = 4
	sum := func(id, want string) {
		t.Helper()
		if res := w.askOf(id, request.Query, "sum", ""); res.Err != nil || string(res.Payload) != want {
			t.Errorf("%s has the sum %s, %v, want %s", id, res.Payload, res.Err, want)
		}
	}
	ends := func(id string) bool {
		t.Helper()
		last := &w.log[len(w.log)-1]
		if last.Entity.ID != id || len(last.Events) != 1 || last.Events[0].Type != abi.RunEnded {
			return false
		}
		s, err := journal.DecodeRunStatus(last.Section(journal.SectionRun))
		end := request.ParseRunEnd(last.Events[0].Payload)
		if err != nil || s.State != journal.RunFailed || s.Code != codeTooManySteps || end.Code != codeTooManySteps || !strings.Contains(end.Message, "5 events") {
			t.Errorf("%s has ended: %+v, %v, %+v", id, s, err, end)
		}
		return true
	}
	for i := range 4 {
		if w.askOf("run", request.Command, "add", fmt.Sprint("a", i)); ends("run") {
			t.Fatalf("a run has ended at event %d", i+1)
		}
	}
	if res := w.askOf("run", request.Command, "add", "b"); res.Err != nil || !ends("run") {
		t.Fatalf("a run of five events: %v, %+v", res.Err, w.log[len(w.log)-1].Events)
	}
	sum("run", "4")

	for i := range 4 {
		w.askOf("saved", request.Command, "add", fmt.Sprint("a", i))
	}
	w.askOf("saved", request.Command, "checkpoint", "c")
	w.askOf("saved", request.Command, "add", "d")
	if sum("saved", "5"); ends("saved") {
		t.Error("a run with a checkpoint has ended")
	}

	for range 4 {
		w.mustDeliver("called", "add", 0)
	}
	if w.mustDeliver("called", "add", 0); !ends("called") {
		t.Errorf("a run that got five messages: %+v", w.log[len(w.log)-1].Events)
	}
	sum("called", "4")

	w.workflow = false
	w.handOver()
	for i := range 6 {
		w.askOf("entity", request.Command, "add", fmt.Sprint("a", i))
	}
	sum("entity", "6")
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}

// TestModulesEndOversizedRuns checks a command that would take the history of
// a run over a limit. If the module has the command that ends a run, that
// command is executed instead, so that the messages to the run's parent and
// children are sent. If the module rejects it, the node ends the run without
// these messages.
func TestModulesEndOversizedRuns(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		w := runs(t)
		w.core.opts.RunEvents, w.refusesEnd = 4, refuses
		w.typ.Internal = map[string]bool{commandEnd: true}
		for i := range 5 {
			if res := w.askOf("client", request.Command, "add", fmt.Sprint("a", i)); res.Err != nil {
				t.Fatal(res.Err)
			}
			w.mustDeliver("called", "add", 0)
		}
		ends := 0
		for i := range w.log {
			r := &w.log[i]
			if len(r.Events) == 0 || r.Events[len(r.Events)-1].Type != abi.RunEnded {
				continue
			}
			ends++
			status, err := journal.DecodeRunStatus(r.Section(journal.SectionRun))
			end := request.ParseRunEnd(r.Events[0].Payload)
			reports := r.Section(journal.SectionMessages) != nil
			if err != nil || len(r.Events) != 1 || status.Code != codeTooManySteps || end.Code != codeTooManySteps || reports != (!refuses && r.Entity.ID == "client") {
				t.Errorf("refused: %v; %s has ended: %+v, %v, %+v; messages: %v", refuses, r.Entity.ID, status, err, end, reports)
			}
			if delivered := r.Section(journal.SectionSource) != nil; delivered != (r.Entity.ID == "called") || !delivered && r.CommandID != "a4" {
				t.Errorf("refused: %v; %s has ended by command %s, a message: %v", refuses, r.Entity.ID, r.CommandID, delivered)
			}
		}
		if ends != 2 {
			t.Errorf("refused: %v; %d runs have ended", refuses, ends)
		}
		if res := w.askOf("client", request.Query, "sum", ""); string(res.Payload) != "4" {
			t.Errorf("refused: %v; the sum is %s, %v", refuses, res.Payload, res.Err)
		}
		if len(w.problems) > 0 {
			t.Error(w.problems[0])
		}
	}
}

// limitedRuns limits the runs of all types.
type limitedRuns struct {
	defaultSettings
	of RunLimits
}

func (l *limitedRuns) RunLimits(string) RunLimits { return l.of }

// TestOpenRunsAreBounded: a start that would exceed the limit of open runs is
// rejected, for a client and for a message, which gets the rejection. A run that
// exists continues, and after a run has ended there is room again.
func TestOpenRunsAreBounded(t *testing.T) {
	w := runs(t)
	w.core.opts.Settings = &limitedRuns{of: RunLimits{Open: 2}}
	var why *request.RejectedError
	for _, id := range []string{"a", "b"} {
		if res := w.askOf(id, request.Command, "add", id); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	if res := w.askOf("c", request.Command, "add", "c"); !errors.As(res.Err, &why) || why.Code != codeTooManyRuns || w.head("c").exists {
		t.Errorf("a third run: %v", res.Err)
	}
	dead := len(w.messages.deadLetters)
	if w.mustDeliver("d", "add", 0); len(w.messages.deadLetters) != dead+1 || w.head("d").exists {
		t.Errorf("a third run by a message: %d dead letters", len(w.messages.deadLetters)-dead)
	}
	w.problems = nil // the world expects that no add is rejected
	if res := w.askOf("a", request.Command, "add", "e"); res.Err != nil {
		t.Errorf("a run that exists: %v", res.Err)
	}
	w.askOf("a", request.Command, commandEnd, "f")
	if res := w.askOf("c", request.Command, "add", "g"); res.Err != nil {
		t.Errorf("after a run has ended: %v", res.Err)
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}

// TestRunsHaveATimeLimit: a run that begins while the setting applies gets a
// timer with the command that ends it, and loses the timer when it ends. A run
// of a module without that command has no timer, and neither has an entity of
// another kind.
func TestRunsHaveATimeLimit(t *testing.T) {
	w := runs(t)
	w.core.opts.Settings = &limitedRuns{of: RunLimits{Time: time.Hour}}
	timer := func(id string) (journal.Timer, bool) {
		timer, has := w.timers[timerKey{sharding.EntityID{Type: "tally", ID: id}, timerTimeLimit}]
		return timer, has
	}
	w.askOf("unable", request.Command, "add", "a")
	if _, has := timer("unable"); has {
		t.Error("a run of a module that cannot end it has a timer")
	}
	w.typ.Internal = map[string]bool{commandEnd: true}
	w.askOf("run", request.Command, "add", "b")
	got, has := timer("run")
	end := request.ParseRunEnd(got.Payload)
	if at := w.log[len(w.log)-1].RecordedAt + int64(time.Hour); !has || got.Due != at || string(got.Command) != commandEnd || end.Code != codeTimeLimit || !strings.Contains(end.Message, "1h0m0s") {
		t.Errorf("the timer of a run: %+v, %v, want one due at %d", got, has, at)
	}
	w.askOf("run", request.Command, "add", "c")
	if later, _ := timer("run"); later.Due != got.Due {
		t.Error("a later command has moved the time limit")
	}
	w.core.opts.Settings = &limitedRuns{}
	w.mustDeliver("run", commandEnd, 0)
	w.problems = nil // the world does not expect this command in a message
	if _, has := timer("run"); has {
		t.Error("an ended run has a timer")
	}
	w.core.opts.Settings = &limitedRuns{of: RunLimits{Time: time.Hour}}
	w.workflow = false
	w.handOver()
	w.typ.Internal = map[string]bool{commandEnd: true}
	w.askOf("entity", request.Command, "add", "e")
	if _, has := timer("entity"); has {
		t.Error("an entity of another kind has a time limit")
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}
