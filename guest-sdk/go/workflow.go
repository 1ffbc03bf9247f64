package hostd

import (
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/hostd/hostd/abi"
)

// Statuses of a run.
const (
	RunRunning   = "running"
	RunCompleted = "completed"
	RunFailed    = "failed"
)

// RunState is a run as callers see it: the reply of its commands and of its
// query "state".
type RunState struct {
	Status   string   `json:"status" hostd:"desc=running, completed or failed; empty before the run starts"`
	Steps    int      `json:"steps"`
	WaitsFor []string `json:"waitsFor,omitempty"`
	Result   RawJSON  `json:"result,omitempty"`
	Code     string   `json:"code,omitempty" hostd:"desc=of the error of a failed run"`
	Message  string   `json:"message,omitempty"`
	// Ahead is set if the function has made more steps than the history contains,
	// in a state that is not at the end of a record.
	Ahead string `json:"ahead,omitempty"`

	run   *run   `json:"-"`
	input string `json:"-"` // digest of the input
}

// emptyRun is the snapshot of a run that was not started.
const emptyRun = `{"status":"","steps":0}`

// Signal is the payload of the command "signal" of a run.
type Signal struct {
	Name  string  `json:"name" hostd:"required"`
	Value RawJSON `json:"value,omitempty"`
}

// signalled is a signal that no step has received yet.
type signalled struct {
	name  string
	value []byte
}

// Events of a run.
type (
	runBegan struct {
		Input       RawJSON `json:"input,omitempty"`
		Incarnation uint64  `json:"incarnation"`
		Seed        uint64  `json:"seed"`
		// Parent is empty if the run is not a child.
		Parent parentRun `json:"parent,omitempty"`
	}
	stepAsked struct {
		Step   int    `json:"step"`
		Kind   string `json:"kind"`
		Target string `json:"target,omitempty"`
		Name   string `json:"name,omitempty"`
		Digest string `json:"digest"`
		Close  string `json:"close,omitempty"` // for a child run
	}
	stepCame struct {
		Step    int     `json:"step"`
		Code    string  `json:"code,omitempty"`
		Message string  `json:"message,omitempty"`
		Value   RawJSON `json:"value,omitempty"`
		Signal  bool    `json:"signal,omitempty"` // true if the value is that of the first queued signal
	}
	stepRetried struct {
		Step    int    `json:"step"`
		Attempt int    `json:"attempt"`
		Code    string `json:"code"`
		Message string `json:"message,omitempty"`
	}
	runSignalled struct {
		Name  string  `json:"name"`
		Value RawJSON `json:"value,omitempty"`
	}
	runCancelled struct{}
	runResumed   struct{}
	// runCheckpoint replaces the run's earlier history: the state is built only
	// from the checkpoint and the events after it.
	runCheckpoint struct {
		Value       RawJSON    `json:"value,omitempty"` // input of the function
		Input       string     `json:"input"`           // digest of the run's first input
		Incarnation uint64     `json:"incarnation"`
		Random      uint64     `json:"random"`
		Step        int        `json:"step"`
		Cancelled   bool       `json:"cancelled,omitempty"`
		Idle        int        `json:"idle,omitempty"` // checkpoints in succession, this one included, without an outcome before them
		Signals     []Signal   `json:"signals,omitempty"`
		Children    []childRun `json:"children,omitempty"`
		Parent      parentRun  `json:"parent,omitempty"`
	}
	// childLeft records the end of a child run for which no step is waiting any
	// more, or whose outcome has the code of a time limit.
	childLeft struct {
		Step int `json:"step"`
	}
	runEnded struct {
		Result  RawJSON `json:"result,omitempty"`
		Code    string  `json:"code,omitempty"`
		Message string  `json:"message,omitempty"`
	}
)

// childRun is a child of a run that has not ended, as far as the run knows.
type childRun struct {
	Step  int         `json:"step"`
	Type  string      `json:"type"`
	ID    string      `json:"id"`
	Close ParentClose `json:"close"`
}

// parentRun is the run that has started a run. Token identifies the step of the
// parent that waits for the run's end.
type parentRun struct {
	Type  string `json:"type,omitempty"`
	ID    string `json:"id,omitempty"`
	Token string `json:"token,omitempty"`
}

// Payloads of the commands between a run and its children.
type (
	childStart struct {
		Input RawJSON `json:"input,omitempty"`
		Token string  `json:"token"`
	}
	childEnd struct {
		Token   string  `json:"token"`
		Code    string  `json:"code,omitempty"`
		Message string  `json:"message,omitempty"`
		Result  RawJSON `json:"result,omitempty"`
	}
	parentEnd struct {
		Token string      `json:"token"`
		Close ParentClose `json:"close"`
	}
)

// EventEnded is the type of the event that ends a run. The host knows it.
const EventEnded = abi.RunEnded

// eventCheckpoint is the type of the event of a checkpoint. It is the last event
// of its command, so that the host can load the run from its payload.
const eventCheckpoint = abi.RunCheckpoint

// Commands that only the host and the run itself send.
const (
	commandCame   = "hostd-came"
	commandFailed = "hostd-failed"
	commandWoken  = "hostd-woken"
	commandResume = "hostd-resume"
	commandRun    = "hostd-run"    // starts a child run
	commandChild  = "hostd-child"  // reports the end of a child to its parent
	commandParent = "hostd-parent" // reports the end of a parent to its child
	commandEnd    = "hostd-end"    // ends the run, because it exceeds a limit of the node
)

// Workflow declares a workflow type: a function that calls entities, sleeps and
// waits for signals, for days if necessary, as if it were never interrupted.
// Each entity of the type is one run. The function may use only its input, f,
// and its own local values: no clock, no random numbers, no package variables
// that change, and no goroutines. If it returns an error, the run fails. If it
// panics, the run stays open until a module that can continue it is activated.
//
// A run has the commands "start" with the input, "signal" with a Signal,
// "cancel" and "terminate", and the query "state", which all return a RunState.
func Workflow[In, Out any](name string, run func(f *Flow, in In) (Out, error), options ...Option) *Type[RunState] {
	t := declare[RunState](name, JSON, false, options)
	d := t.def
	d.workflow = true
	w := &workflow{Type: t, in: d.mustCodec(reflect.TypeFor[In](), "input"), inType: reflect.TypeFor[In]()}
	out := d.mustCodec(reflect.TypeFor[Out](), "result")
	w.body = func(input []byte) func(*Flow) ([]byte, error) {
		return func(f *Flow) ([]byte, error) {
			var in In
			if err := decode(w.in, input, unsafe.Pointer(&in)); err != nil {
				return nil, &Rejection{CodeInvalidPayload, err.Error()}
			}
			result, err := run(f, in)
			if err != nil {
				return nil, err
			}
			return out.Append(nil, unsafe.Pointer(&result))
		}
	}
	w.events()
	w.commands()
	d.release = func(state unsafe.Pointer) { (*RunState)(state).release() }
	d.prepare = func(state unsafe.Pointer) { (*RunState)(state).prepare() }
	return t
}

// workflow is a workflow type.
type workflow struct {
	*Type[RunState]
	in     codec
	inType reflect.Type
	body   func(input []byte) func(*Flow) ([]byte, error)
}

// release ends the run's function before the run leaves memory.
func (s *RunState) release() {
	if s.run != nil {
		s.run.halt()
		s.run = nil
	}
}

// prepare completes the state for readers. It panics if the function differs
// from the history. If the function has made more steps than the history
// contains, that is a difference only at the end of the history. Only the host
// knows where the end is, so prepare reports it in Ahead: for the module that
// wrote the history, Ahead is empty there.
func (s *RunState) prepare() {
	r := s.run
	if r == nil || s.Status != RunRunning {
		return
	}
	if r.fault == "" && r.panicked != "" {
		r.fault = "run " + r.id + ", step " + strconv.Itoa(r.steps) + ": " + r.panicked
	}
	if r.fault != "" {
		r.fail(r.fault)
	}
	s.Ahead = r.ahead()
	s.Steps, s.WaitsFor = r.steps, s.WaitsFor[:0]
	for _, p := range r.pending {
		if len(s.WaitsFor) < 16 {
			s.WaitsFor = append(s.WaitsFor, p.text())
		}
	}
}

// fail ends the instance with the text, which names the line. stop writes no
// stack trace, because it would show only the SDK, and the host would not keep
// the text as well.
func (r *run) fail(text string) { stop("hostd: " + text) }

// waits describes the steps without an outcome in the history.
func (r *run) waits() string {
	if len(r.pending) > 0 {
		return r.pending[len(r.pending)-1].text()
	}
	return "nothing"
}

// ahead describes the steps that the function has made and the history does not
// contain.
func (r *run) ahead() string {
	switch {
	case len(r.made) > 0:
		return "run " + r.id + ", step " + strconv.Itoa(r.made[0].number) + ": the code asks for " + r.made[0].text() + ", the history ends there"
	case r.restart != nil:
		return "run " + r.id + ", step " + strconv.Itoa(r.steps+1) + ": the code makes a checkpoint, the history ends there"
	case r.over:
		return "run " + r.id + ", step " + strconv.Itoa(r.steps+1) + ": the code returns, the history waits for " + r.waits()
	}
	return ""
}

// progress appends a progress frame, which tells the host what the run waits
// for.
func (s *RunState) progress(dst []byte) []byte {
	r := s.run
	if r == nil || s.Status != RunRunning {
		return abi.AppendProgress(dst, abi.Progress{Steps: uint32(s.Steps)})
	}
	waits := make([][]byte, 0, abi.MaxWaits)
	for _, p := range r.pending[:min(len(r.pending), abi.MaxWaits)] {
		waits = append(waits, []byte(p.text()))
	}
	return abi.AppendProgress(dst, abi.Progress{Steps: uint32(r.steps), Waits: waits})
}

// settled completes the state at the end of the history. It panics if the
// function has made more steps than the history contains, because the run then
// cannot continue.
func (s *RunState) settled() {
	if s.prepare(); s.Ahead != "" && s.Status == RunRunning {
		s.run.fail(s.Ahead)
	}
}

// unmade records a difference if the function has asked for a step or for a
// checkpoint, and the history continues without it.
func (r *run) unmade() {
	switch {
	case len(r.made) > 0:
		r.differ(r.made[0].number, "the code asks for "+r.made[0].text()+", the history has none")
	case r.restart != nil:
		r.differ(r.steps+1, "the code makes a checkpoint, the history has none")
	}
}

// events declares the events of a run. Only these events change the state, in
// live runs and in replays.
func (w *workflow) events() {
	d := w.def
	Event(w.Type, "began", func(s *RunState, e runBegan) {
		s.release()
		*s = RunState{Status: RunRunning, input: inputDigest(e.Input)}
		r := &run{def: d, flow: w, id: d.id, body: w.body(e.Input), input: s.input, incarnation: e.Incarnation, random: e.Seed, parent: e.Parent}
		s.run = r
		r.count(len(e.Input))
		r.start()
		r.resume(d.now)
	})
	// The steps before a checkpoint are not compared, so that a replay gives the
	// same result no matter where it begins. The function starts when the run is
	// resumed.
	Event(w.Type, eventCheckpoint, func(s *RunState, e runCheckpoint) {
		s.release()
		*s = RunState{Status: RunRunning, input: e.Input}
		r := &run{def: d, flow: w, id: d.id, body: w.body(e.Value), input: e.Input, incarnation: e.Incarnation, random: e.Random, cancelled: e.Cancelled, parent: e.Parent, children: e.Children}
		r.steps, r.recorded, r.base, r.paused, r.idle = e.Step, e.Step, e.Step, true, e.Idle
		s.run = r
		if err := w.decodable(e.Value); err != nil { // the function starts later, maybe after this module has replaced another
			r.differ(e.Step+1, "the code cannot read the input of the checkpoint: "+err.Error())
		}
		r.count(len(e.Value))
		for _, q := range e.Signals {
			r.queue(q.Name, q.Value)
			r.count(len(q.Name) + len(q.Value))
		}
		r.start()
	})
	on := func(s *RunState, bytes int) *run {
		r := s.run
		if r == nil || r.halted {
			return nil
		}
		r.count(bytes)
		r.lacks()
		r.unmade()
		if r.halted {
			return nil
		}
		return r
	}
	Event(w.Type, "asked", func(s *RunState, e stepAsked) {
		r := s.run
		if r == nil {
			return
		}
		if e.Kind == stepRun { // recorded whatever the function does, so that terminate knows the child run
			typ, id, _ := strings.Cut(e.Target, "/")
			r.children = append(r.children, childRun{e.Step, typ, id, ParentClose(e.Close)})
		}
		if r.recorded = e.Step; r.halted {
			return
		}
		r.count(64 + len(e.Target) + len(e.Name))
		want := stepText(e.Kind, e.Target, e.Name)
		for r.patch != "" && len(r.made) == 0 && !r.halted {
			if e.Kind == stepPatch && e.Name == r.patch && e.Step == r.steps+1 {
				r.decide(true, d.now)
				return
			}
			r.decide(false, 0)
		}
		switch {
		case r.halted:
			return
		case r.panicked != "":
			r.differ(e.Step, r.panicked+", the history has "+want)
			return
		case len(r.made) == 0 && r.over:
			r.differ(e.Step, "the code returns, the history has "+want)
			return
		case len(r.made) == 0 && r.restart != nil:
			r.differ(e.Step, "the code makes a checkpoint, the history has "+want)
			return
		case len(r.made) == 0:
			r.differ(e.Step, "the code waits for "+r.waits()+", the history has "+want)
			return
		}
		m := r.made[0]
		switch {
		case m.number != e.Step || m.text() != want:
			r.differ(e.Step, "the code asks for "+m.text()+", the history has "+want)
			return
		case m.digest != e.Digest:
			r.differ(e.Step, "the code asks for "+want+" with another payload or time than the history has")
			return
		}
		r.made = r.made[1:]
		if m.attempt = 1; m.kind != stepSend {
			r.pending = append(r.pending, m)
		}
	})
	Event(w.Type, "left", func(s *RunState, e childLeft) {
		if s.run != nil {
			s.run.left(e.Step)
		}
		on(s, 16)
	})
	Event(w.Type, "came", func(s *RunState, e stepCame) {
		if s.run != nil && e.Code != CodeDeadlineExceeded {
			s.run.left(e.Step)
		}
		r := on(s, 64+len(e.Value)+len(e.Message))
		if r == nil {
			return
		}
		p := r.find(e.Step)
		if p == nil {
			r.differ(e.Step, "the history has an outcome, the code waits for "+r.waits())
			return
		}
		value := []byte(e.Value)
		if e.Signal {
			value = r.take(p.name)
		}
		r.settle(p, e.Code, e.Message, value)
		r.resume(d.now)
	})
	Event(w.Type, "retried", func(s *RunState, e stepRetried) {
		if r := on(s, 64+len(e.Message)); r != nil {
			if p := r.find(e.Step); p != nil {
				p.attempt = e.Attempt
			}
		}
	})
	Event(w.Type, "signalled", func(s *RunState, e runSignalled) {
		if r := on(s, 32+len(e.Name)+len(e.Value)); r != nil {
			r.queue(e.Name, e.Value)
		}
	})
	Event(w.Type, "cancelled", func(s *RunState, e runCancelled) {
		r := on(s, 16)
		if r == nil {
			return
		}
		r.cancelled = true
		for _, p := range r.cancellable() {
			r.settle(p, CodeCancelled, "the run was cancelled", nil)
		}
		r.resume(d.now)
	})
	Event(w.Type, "resumed", func(s *RunState, e runResumed) {
		if r := on(s, 16); r != nil {
			r.paused = false
			r.resume(d.now)
		}
	})
	Event(w.Type, EventEnded, func(s *RunState, e runEnded) {
		if s.run != nil {
			s.Steps = s.run.recorded
		}
		s.release()
		s.Status, s.WaitsFor, s.Ahead, s.Result, s.Code, s.Message = RunCompleted, nil, "", e.Result, e.Code, e.Message
		if e.Code != "" {
			s.Status = RunFailed
		}
	})
}

// left removes a child run that has ended from the list of children.
func (r *run) left(step int) {
	r.children = slices.DeleteFunc(slices.Clone(r.children), func(c childRun) bool { return c.Step == step })
}

// count counts the bytes of the history.
func (r *run) count(bytes int) { r.bytes += bytes }

// queue adds a signal that no step has received.
func (r *run) queue(name string, value []byte) {
	r.signals = append(r.signals, signalled{name, value})
	r.signalBytes += len(name) + len(value)
}

// take removes the first queued signal of a name and returns its value.
func (r *run) take(name string) []byte {
	for i, q := range r.signals {
		if q.name == name {
			r.signals = append(r.signals[:i:i], r.signals[i+1:]...)
			r.signalBytes -= len(q.name) + len(q.value)
			return q.value
		}
	}
	r.differ(r.steps, "the history receives a signal "+name+" that did not come")
	return nil
}

// commands declares the commands of a run.
func (w *workflow) commands() {
	d := w.def
	w.add("start", false, w.in, w.start)
	Command(w.Type, "signal", func(c *Context, s *RunState, sig Signal) (RunState, error) {
		if err := s.open(); err != nil {
			return RunState{}, err
		}
		r := s.run
		switch {
		case sig.Name == "" || len(sig.Name) > abi.MaxNameBytes:
			return RunState{}, Reject("invalid_signal", "a signal has a name of at most 255 bytes")
		case len(sig.Value) > maxStepBytes:
			return RunState{}, Reject("signal_too_large", "the value of a signal has at most 48 KiB")
		case len(r.signals) >= maxSignals || r.signalBytes+len(sig.Name)+len(sig.Value) > maxSignalBytes:
			return RunState{}, Reject("resource_exhausted", "the run has not received its last signals yet: at most 1,000 and 1 MiB wait")
		}
		if r = w.ready(c, s); r == nil {
			return s.seen(), nil // a signal is dropped if the run ends before it receives it
		}
		w.emit(c, r, runSignalled{sig.Name, sig.Value}, len(sig.Value))
		return w.proceed(c, s), nil
	})
	Command(w.Type, "cancel", func(c *Context, s *RunState, _ None) (RunState, error) {
		if err := s.open(); err != nil {
			return RunState{}, err
		}
		w.cancel(c, s)
		return s.seen(), nil
	})
	Command(w.Type, "terminate", func(c *Context, s *RunState, _ None) (RunState, error) {
		// This also works for runs whose function cannot continue.
		if s.run == nil || s.Status != RunRunning {
			return RunState{}, s.open()
		}
		w.finish(c, s.run, runEnded{Code: CodeTerminated, Message: "the run was terminated"})
		return s.seen(), nil
	})
	Query(w.Type, "state", func(_ *View, s *RunState, _ None) (RunState, error) { return s.seen(), nil })
	w.add(commandCame, true, noCodec{}, func(c *Context, s *RunState, payload []byte) error {
		return w.outcome(c, s, "", "", payload)
	})
	w.add(commandFailed, true, noCodec{}, func(c *Context, s *RunState, payload []byte) error {
		var why struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		}
		if err := d.decodeTo(&why, payload); err != nil || why.Code == "" {
			why.Code, why.Message = "internal", "the rejection cannot be read"
		}
		return w.outcome(c, s, why.Code, why.Message, nil)
	})
	w.add(commandWoken, true, noCodec{}, w.woken)
	w.add(commandRun, true, noCodec{}, w.startChild)
	w.add(commandChild, true, noCodec{}, w.childEnded)
	w.add(commandParent, true, noCodec{}, w.parentEnded)
	w.add(commandEnd, true, noCodec{}, func(c *Context, s *RunState, payload []byte) error {
		var end runEnded
		if s.run == nil || s.Status != RunRunning || d.decodeTo(&end, payload) != nil {
			return nil
		}
		if end.Code == "" { // without a code the run would be completed
			return Reject(CodeInvalidPayload, "the end of a run by the node needs a code")
		}
		w.finish(c, s.run, runEnded{Code: end.Code, Message: end.Message}) // also if its function cannot continue
		return nil
	})
	w.add(commandResume, true, noCodec{}, func(c *Context, s *RunState, _ []byte) error {
		if s.run == nil || s.Status != RunRunning {
			return nil
		}
		r := w.ready(c, s)
		if r == nil {
			return nil
		}
		if r.resuming = false; r.paused {
			w.emit(c, r, runResumed{}, 0)
		}
		w.proceed(c, s)
		return nil
	})
}

// add declares a command whose handler gets the payload's bytes.
func (w *workflow) add(name string, internal bool, in codec, handler func(*Context, *RunState, []byte) error) {
	d := w.def
	d.mustName("command", name, func(name []byte) bool { return d.command(name) != nil })
	out := codec(noCodec{})
	if !internal {
		out = d.mustCodec(reflect.TypeFor[RunState](), "reply of "+name)
	}
	d.commands = append(d.commands, command{name: name, internal: internal, in: in, out: out, run: func(c *Context, state unsafe.Pointer, payload []byte) error {
		s := (*RunState)(state)
		if err := handler(c, s, payload); err != nil || internal {
			return err
		}
		seen := s.seen()
		c.guest.reply(out, unsafe.Pointer(&seen))
		return nil
	}})
}

// open returns an error if the run is not running.
func (s *RunState) open() error {
	switch {
	case s.Status == "":
		return Reject("not_started", "there is no run of this id: start it")
	case s.Status != RunRunning:
		return Reject("ended", "the run has ended: it is "+s.Status)
	}
	s.settled()
	return nil
}

// seen returns the state for a reply.
func (s *RunState) seen() RunState {
	s.settled()
	out := *s
	out.run, out.input = nil, ""
	return out
}

// start starts the run, or returns the existing run if it has the same input.
func (w *workflow) start(c *Context, s *RunState, input []byte) error {
	if s.Status != "" {
		if s.input != inputDigest(input) {
			return Reject("already_started", "a run of this id has another input")
		}
		return nil
	}
	return w.began(c, s, input, parentRun{})
}

// began records the start of a run.
func (w *workflow) began(c *Context, s *RunState, input []byte, parent parentRun) error {
	if len(input) > maxStepBytes {
		return Reject("input_too_large", "the input of a run has at most 48 KiB")
	}
	if err := w.decodable(input); err != nil {
		return &Rejection{CodeInvalidPayload, err.Error()}
	}
	c.Emit(runBegan{Input: append(RawJSON{}, input...), Incarnation: c.Sequence(), Seed: c.request.Seed, Parent: parent})
	s.run.begin()
	s.run.events++
	w.proceed(c, s)
	return nil
}

// decodable returns an error if the input cannot be decoded for the function.
func (w *workflow) decodable(input []byte) error {
	if len(input) == 0 {
		return nil
	}
	return decode(w.in, input, reflect.New(w.inType).UnsafePointer())
}

// inputDigest identifies the run's first input after a checkpoint, because the
// checkpoint does not contain that input. A caller who starts the run with a
// different input of the same digest gets this run.
func inputDigest(input []byte) string {
	h := fnv.New128a()
	h.Write(input)
	return hex.EncodeToString(h.Sum(nil))
}

// begin starts the counts of a command.
func (r *run) begin() { r.events, r.emitted, r.sent, r.timers = 0, 0, 0, 0 }

// ready begins a command of an open run. If the function asks about a patch
// that the history does not have yet, the run gets the patch now, before the
// command has an effect. ready returns nil if that ends the run.
func (w *workflow) ready(c *Context, s *RunState) *run {
	s.settled()
	if s.run.begin(); s.run.patch != "" {
		w.proceed(c, s)
	}
	if s.Status != RunRunning {
		return nil
	}
	return s.run
}

// emit emits an event.
func (w *workflow) emit(c *Context, r *run, event any, bytes int) {
	r.events++
	r.emitted += bytes + 256
	c.Emit(event)
}

// fits reports whether the current command has room for another outcome, and
// for the steps that the function may ask for after it. A command emits at most
// 128 events and 128 timers, 256 KiB of events, and 256 KiB of sends.
func (r *run) fits() bool {
	return r.events+maxAsks+maxPatches-len(r.patches)+2 < 128 && r.emitted < 128<<10 && r.sent < 56<<10 && r.timers < 24
}

// proceed records the progress of the function since it was resumed: its steps,
// the outcomes that are already known, and its end.
func (w *workflow) proceed(c *Context, s *RunState) RunState {
	r := s.run
	for {
		if r.panicked != "" {
			r.fail("run " + r.id + ", step " + strconv.Itoa(r.steps) + ": " + r.panicked)
		}
		for len(r.made) > 0 {
			m := r.made[0]
			w.emit(c, r, stepAsked{m.number, m.kind, m.target(), m.name, m.digest, string(m.close)}, len(m.typ)+len(m.id)+len(m.name))
			if r.fault != "" {
				r.fail(r.fault)
			}
			w.carryOut(c, r, m)
		}
		if r.over {
			w.end(c, r)
			return s.seen()
		}
		if r.patch != "" {
			w.emit(c, r, stepAsked{Step: r.steps + 1, Kind: stepPatch, Name: r.patch}, len(r.patch))
			continue
		}
		if r.restart != nil {
			r.cancelTimers(c, r.pending)
			w.emit(c, r, *r.restart, 0)
			s.run.pause(c, w)
			return s.seen()
		}
		p := r.receiver()
		if !r.paused && p == nil {
			return s.seen()
		}
		if r.paused || !r.fits() {
			r.pause(c, w)
			return s.seen()
		}
		w.emit(c, r, stepCame{Step: p.number, Signal: true}, 0)
		r.cancelTimers(c, []*step{p})
	}
}

// pause sends the run the command that resumes it. If the run makes checkpoints
// in a loop that waits for nothing, a timer sends the command later instead, so
// that the loop does not fill the disk.
func (r *run) pause(c *Context, w *workflow) {
	switch {
	case r.resuming:
		return
	case r.isIdle():
		c.SetTimer(timerResume, c.Now().Add(min(Second<<min(r.idle-2, 6), Minute)), commandResume, nil)
		r.timers++
	default:
		c.Send(w.def.name, r.id, commandResume, nil)
	}
	r.resuming = true
}

// timerResume is the timer that resumes a run after an idle checkpoint.
const timerResume = "resume"

// isIdle reports whether the run has made at least two checkpoints in
// succession without an outcome between them.
func (r *run) isIdle() bool { return r.paused && r.idle > 1 && r.steps == r.base }

// receiver returns the first step that waits for a queued signal, or nil if
// there is none.
func (r *run) receiver() *step {
	for _, p := range r.pending {
		if p.kind != stepWait {
			continue
		}
		for _, q := range r.signals {
			if q.name == p.name {
				return p
			}
		}
	}
	return nil
}

// end emits the end of the run.
func (w *workflow) end(c *Context, r *run) {
	e := runEnded{Result: r.result}
	if len(r.result) > maxStepBytes {
		e = runEnded{Code: CodeResultTooLarge, Message: "the result of the run has " + strconv.Itoa(len(r.result)) + " bytes, limit 49152"}
	}
	if r.err != nil {
		why := rejectionOf(r.err)
		e = runEnded{Code: why.Code, Message: why.Message[:min(len(why.Message), 4<<10)]}
		if e.Code == "" {
			e.Code = CodeError
		}
	}
	w.finish(c, r, e)
}

// finish ends the run, and reports that to its children and to its parent.
func (w *workflow) finish(c *Context, r *run, e runEnded) {
	if r.cancelTimers(c, r.pending); r.isIdle() {
		c.CancelTimer(timerResume)
	}
	for _, child := range r.children {
		if child.Close != ChildContinues {
			c.Send(child.Type, child.ID, commandParent, parentEnd{r.childToken(child.Step), child.Close})
		}
	}
	if p := r.parent; p.Token != "" {
		c.Send(p.Type, p.ID, commandChild, childEnd{p.Token, e.Code, e.Message, e.Result})
	}
	c.Emit(e)
}

// childToken identifies a child run of the run.
func (r *run) childToken(number int) string {
	return hex.EncodeToString(r.token(&step{number: number, attempt: 1}))
}

// startChild starts the run as a child of another run.
func (w *workflow) startChild(c *Context, s *RunState, payload []byte) error {
	var in childStart
	from := c.request.Source
	switch err := w.def.decodeTo(&in, payload); {
	case err != nil:
		return err
	case from.Kind != abi.SourceEntity || in.Token == "":
		return Reject(CodeInvalidPayload, "only a run can start a child")
	case s.Status != "":
		return Reject("already_started", "a run of this id exists")
	case w.def.sends != nil && !abi.MatchesType(*w.def.sends, from.EntityType):
		return Reject("parent_not_declared", w.def.name+" declares Sends without "+string(from.EntityType)+", the type of the parent, and so cannot report its end")
	}
	return w.began(c, s, in.Input, parentRun{string(from.EntityType), string(from.EntityID), in.Token})
}

// childEnded records the outcome of a child run.
func (w *workflow) childEnded(c *Context, s *RunState, payload []byte) error {
	var end childEnd
	if s.run == nil || s.Status != RunRunning || w.def.decodeTo(&end, payload) != nil {
		return nil
	}
	r := w.ready(c, s)
	if r == nil {
		return nil
	}
	for _, child := range r.children {
		if end.Token != r.childToken(child.Step) || child.Type != string(c.request.Source.EntityType) || child.ID != string(c.request.Source.EntityID) {
			continue
		}
		if p := r.find(child.Step); p != nil {
			r.cancelTimers(c, []*step{p})
			w.forget(c, r, p, end.Code)
			w.emit(c, r, stepCame{Step: p.number, Code: end.Code, Message: end.Message, Value: end.Result}, len(end.Message)+len(end.Result))
		} else {
			w.emit(c, r, childLeft{child.Step}, 0)
		}
		w.proceed(c, s)
		return nil
	}
	return nil
}

// forget removes a child run that failed with CodeDeadlineExceeded from the
// open children. The outcome of the step alone does not show that the child has
// ended, because a step whose time limit passes has the same code and leaves
// its child open.
func (w *workflow) forget(c *Context, r *run, s *step, code string) {
	if s.kind == stepRun && code == CodeDeadlineExceeded {
		w.emit(c, r, childLeft{s.number}, 0)
	}
}

// parentEnded ends or cancels a child run whose parent has ended.
func (w *workflow) parentEnded(c *Context, s *RunState, payload []byte) error {
	var end parentEnd
	if s.run == nil || s.Status != RunRunning || w.def.decodeTo(&end, payload) != nil {
		return nil
	}
	from := c.request.Source
	if p := s.run.parent; p.Token == "" || p.Token != end.Token || p.Type != string(from.EntityType) || p.ID != string(from.EntityID) {
		return nil
	}
	if end.Close == ChildTerminates { // even if the run's function cannot continue
		w.finish(c, s.run, runEnded{Code: CodeTerminated, Message: "the run's parent has ended"})
		return nil
	}
	w.cancel(c, s)
	return nil
}

// cancel cancels the run, unless it was cancelled before.
func (w *workflow) cancel(c *Context, s *RunState) {
	s.settled()
	if s.run.cancelled {
		return
	}
	r := w.ready(c, s)
	if r == nil {
		return
	}
	r.cancelTimers(c, r.cancellable())
	w.emit(c, r, runCancelled{}, 0)
	w.proceed(c, s)
}

// cancellable returns the pending steps whose waits a cancellation ends.
func (r *run) cancellable() []*step {
	return slices.DeleteFunc(slices.Clone(r.pending), func(s *step) bool { return s.shielded })
}

// timerNames are the timers of a step: for its time limit or its end, and for
// its next attempt.
func (s *step) timerNames() [2]string {
	n := strconv.Itoa(s.number)
	return [2]string{"due-" + n, "retry-" + n}
}

// cancelTimers cancels the timers of steps that have an outcome. It must be
// called before the steps are forgotten.
func (r *run) cancelTimers(c *Context, steps []*step) {
	for _, s := range steps[:min(len(steps), 16)] { // a timer that is not cancelled has no effect, because its step is not pending
		names := s.timerNames()
		if s.kind == stepSleep || s.within > 0 {
			c.CancelTimer(names[0])
			r.timers++
		}
		if s.retry != nil && s.attempt > 1 {
			c.CancelTimer(names[1])
			r.timers++
		}
	}
}

// token identifies an attempt of a step of a run: the incarnation of the run,
// the number of the step, and the number of the attempt.
func (r *run) token(s *step) []byte {
	t := binary.LittleEndian.AppendUint64(make([]byte, 0, 16), r.incarnation)
	t = binary.LittleEndian.AppendUint32(t, uint32(s.number))
	return binary.LittleEndian.AppendUint32(t, uint32(s.attempt))
}

// named returns the pending step whose current attempt the token identifies, or
// nil if there is none.
func (r *run) named(token []byte) *step {
	if len(token) != 16 || binary.LittleEndian.Uint64(token) != r.incarnation {
		return nil
	}
	s := r.find(int(binary.LittleEndian.Uint32(token[8:])))
	if s == nil || s.attempt != int(binary.LittleEndian.Uint32(token[12:])) {
		return nil
	}
	return s
}

// wake is the payload of a run's timers.
type wake struct {
	Incarnation uint64 `json:"incarnation"`
	Step        int    `json:"step"`
	Attempt     int    `json:"attempt,omitempty"` // number of the attempt to make; 0 if the step's time limit has passed
}

// carryOut performs the effects of a step that the function has asked for.
func (w *workflow) carryOut(c *Context, r *run, s *step) {
	switch s.kind {
	case stepSend:
		r.sent += len(s.payload) + 256
		c.guest.out = abi.AppendSend(c.guest.out, abi.Send{EntityType: field(s.typ), EntityID: field(s.id), Command: field(s.name), Payload: s.payload})
	case stepCall:
		w.call(c, r, s)
	case stepRun:
		w.run(c, r, s)
	case stepSleep:
		c.SetTimer(s.timerNames()[0], s.due, commandWoken, wake{r.incarnation, s.number, 0})
		r.timers++
	}
	if s.within > 0 && (s.kind == stepCall || s.kind == stepWait || s.kind == stepRun) {
		c.SetTimer(s.timerNames()[0], c.Now().Add(s.within), commandWoken, wake{r.incarnation, s.number, 0})
		r.timers++
	}
}

// call sends the command of a step.
func (w *workflow) call(c *Context, r *run, s *step) {
	r.sent += len(s.payload) + 256
	c.guest.out = abi.AppendSend(c.guest.out, abi.Send{
		EntityType: field(s.typ), EntityID: field(s.id), Command: field(s.name), Payload: s.payload,
		WantsAnswer: true, OnReply: []byte(commandCame), OnReject: []byte(commandFailed), Token: r.token(s),
	})
}

// run sends the command that starts a child run. Its outcome matters only if it
// is a rejection, because the child reports its end.
func (w *workflow) run(c *Context, r *run, s *step) {
	payload, err := w.def.encode(nil, childStart{s.payload, r.childToken(s.number)})
	if err != nil {
		panic("hostd: start of a child run: " + err.Error())
	}
	r.sent += len(payload) + 256
	c.guest.out = abi.AppendSend(c.guest.out, abi.Send{
		EntityType: field(s.typ), EntityID: field(s.id), Command: []byte(commandRun), Payload: payload,
		WantsAnswer: true, OnReply: []byte(commandCame), OnReject: []byte(commandFailed), Token: r.token(s),
	})
}

// outcome records the outcome of a call. An outcome has no effect if its step
// is not pending: the run has stopped waiting for it, or it belongs to an
// earlier run or attempt.
func (w *workflow) outcome(c *Context, s *RunState, code, message string, value []byte) error {
	if s.run == nil || s.Status != RunRunning {
		return nil
	}
	r := w.ready(c, s)
	if r == nil {
		return nil
	}
	p := r.named(c.request.Token)
	if p == nil || p.kind != stepCall && (p.kind != stepRun || code == "") {
		return nil
	}
	var raw RawJSON
	if len(value) > maxStepBytes {
		code, message, value = CodeResultTooLarge, "the outcome has "+strconv.Itoa(len(value))+" bytes, limit 49152", nil
	} else if err := w.def.decodeTo(&raw, value); err != nil {
		code, message, value = CodeInvalidPayload, "the outcome is not JSON", nil
	}
	if wait, retried := p.retry.wait(p.attempt, code); code != "" && retried {
		w.emit(c, r, stepRetried{p.number, p.attempt + 1, code, message}, len(message))
		c.SetTimer(p.timerNames()[1], c.Now().Add(wait), commandWoken, wake{r.incarnation, p.number, p.attempt})
		w.proceed(c, s)
		return nil
	}
	r.cancelTimers(c, []*step{p})
	w.forget(c, r, p, code)
	w.emit(c, r, stepCame{Step: p.number, Code: code, Message: message, Value: value}, len(message)+len(value))
	w.proceed(c, s)
	return nil
}

// woken handles a timer of the run.
func (w *workflow) woken(c *Context, s *RunState, payload []byte) error {
	var by wake
	if s.run == nil || s.Status != RunRunning || w.def.decodeTo(&by, payload) != nil {
		return nil
	}
	r := w.ready(c, s)
	if r == nil {
		return nil
	}
	p := r.find(by.Step)
	if p == nil || by.Incarnation != r.incarnation || by.Attempt > 0 && by.Attempt != p.attempt {
		return nil
	}
	switch {
	case by.Attempt > 0:
		w.call(c, r, p)
		return nil
	case p.kind == stepSleep:
		w.emit(c, r, stepCame{Step: p.number}, 0)
	default:
		r.cancelTimers(c, []*step{p})
		w.emit(c, r, stepCame{Step: p.number, Code: CodeDeadlineExceeded, Message: "the time limit of the step has passed"}, 0)
	}
	w.proceed(c, s)
	return nil
}

// decodeTo decodes a payload into a value.
func (d *definition) decodeTo(value any, payload []byte) error {
	typ := reflect.TypeOf(value).Elem()
	c, err := d.codec(typ)
	if err != nil {
		return err
	}
	if err := decode(c, payload, reflect.ValueOf(value).UnsafePointer()); err != nil {
		return &Rejection{CodeInvalidPayload, err.Error()}
	}
	return nil
}
