package hostd

import (
	"hash/fnv"
	"iter"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/hostd/hostd/abi"
)

// A run is a function that runs in a coroutine until it waits for the outcome
// of a step. The run stores only its input and two events for each step: asked
// when the function asks for the step, and came with the step's outcome.
// Loading a run runs the function again and answers its steps from the events,
// so the function must ask for the same steps again. Each step that it asks for
// is compared with the asked event in the same place, including the last step,
// whose outcome is missing. Comparing only outcomes would not be enough: a
// changed function would get the outcome of the old step for its new step.

// Codes of the errors that steps return, in addition to the codes of the
// rejections of calls.
const (
	// CodeCancelled: the run was cancelled while it waited for the step.
	CodeCancelled = "cancelled"
	// CodeDeadlineExceeded: the step's time limit has passed. The command of a
	// call may still take effect.
	CodeDeadlineExceeded = "deadline_exceeded"
	// CodeResultTooLarge: the outcome of the step is larger than 48 KiB.
	CodeResultTooLarge = "result_too_large"
	// CodePayloadTooLarge: the payload of a call or a send is larger than 64 KiB.
	// The step was not made.
	CodePayloadTooLarge = "payload_too_large"
	// CodeTooManySteps ends a run that asks for more than 10,000 steps since
	// its last checkpoint, or whose history since then exceeds 8 MiB.
	CodeTooManySteps = "too_many_steps"
	// CodeCheckpointTooLarge: the value of a checkpoint and the signals that the
	// run has not received are together larger than 60 KiB. The checkpoint was not
	// made.
	CodeCheckpointTooLarge = "checkpoint_too_large"
	// CodeTooManyChildren: the run has 48 child runs that have not ended. The
	// step was not made.
	CodeTooManyChildren = "too_many_children"
	// CodeTerminated ends a run that was terminated.
	CodeTerminated = "terminated"
)

// Limits of a run.
const (
	maxSteps        = 10_000
	maxHistoryBytes = 8 << 20
	maxStepBytes    = 48 << 10 // bytes of an outcome, a signal, an input or a result
	maxAsks         = 64       // number of steps after which a run yields
	maxAskBytes     = 128 << 10
	maxChildren     = 48       // child runs of a run that have not ended
	maxPatches      = 32       // patches of a run since its last checkpoint
	maxCheckpoint   = 60 << 10 // bytes of its event
	maxSignals      = 1000
	maxSignalBytes  = 1 << 20
)

// Kinds of steps.
const (
	stepCall  = "call"
	stepSend  = "send"
	stepSleep = "sleep"
	stepWait  = "wait"
	stepPatch = "patch" // a patch has no outcome
	stepRun   = "run"
)

// step is one step of a run.
type step struct {
	number   int
	kind     string
	typ, id  string // type and id of the destination
	name     string // name of the command or the signal
	payload  []byte
	digest   string // digest of everything else that must not change
	due      Instant
	within   Duration
	retry    *retry
	close    ParentClose // for a child run
	shielded bool        // a cancellation does not end the wait: NonCancellable

	attempt int
	done    bool
	order   int // position of the outcome among the outcomes of the run
	code    string
	message string
	value   []byte
}

// text describes the step in an error message for people.
func (s *step) text() string { return stepText(s.kind, s.target(), s.name) }

func (s *step) target() string {
	if s.typ == "" {
		return ""
	}
	return s.typ + "/" + s.id
}

func stepText(kind, target, name string) string {
	switch {
	case target != "" && name != "":
		return kind + " " + target + " " + name
	case target != "":
		return kind + " " + target
	case name != "":
		return kind + " " + name
	}
	return kind
}

// sum sets the step's digest. It covers the payload, the given numbers, the
// codes on which the step is retried, and whether a cancellation ends the wait.
func (s *step) sum(numbers ...int64) *step {
	h := fnv.New64a()
	h.Write(s.payload)
	for _, n := range numbers {
		h.Write([]byte(" " + strconv.FormatInt(n, 10)))
	}
	if s.retry != nil {
		for _, c := range s.retry.codes {
			h.Write([]byte(" " + strconv.Quote(c)))
		}
	}
	if s.shielded {
		h.Write([]byte(" not cancellable"))
	}
	s.digest = strconv.FormatUint(h.Sum64(), 16)
	return s
}

// err returns the outcome as an error, or nil if the step succeeded.
func (s *step) err() error {
	if s.code == "" {
		return nil
	}
	return &Rejection{s.code, s.message}
}

// Flow is the interface of a running workflow function to the host. It is valid
// only in the function that gets it, and not in goroutines.
type Flow struct{ run *run }

// run is a run in memory.
type run struct {
	def  *definition
	flow *workflow
	id   string
	body func(*Flow) ([]byte, error)

	incarnation uint64
	input       string // digest of the input that the run was started with
	next        func() (struct{}, bool)
	stop        func()
	yield       func(struct{}) bool
	halted      bool // the function must not act any more
	over        bool // the function has returned
	ending      error
	result      []byte
	err         error
	panicked    string // where and why the function panicked

	made     []*step // steps that the function has asked for and that are not in the history yet
	pending  []*step // steps in the history without an outcome
	steps    int
	base     int             // number of steps before the last checkpoint
	recorded int             // number of steps in the history
	restart  *runCheckpoint  // a checkpoint that the function has asked for and that is not in the history yet
	fault    string          // how the function differs from the history
	patch    string          // the patch that the function asks about, while the history has no answer yet
	patches  map[string]bool // answers for the patches that the function has asked about

	asks, askBytes int // number and bytes of steps since the function was resumed
	paused         bool
	resuming       bool // a command that resumes the run is on its way
	idle           int  // number of checkpoints in succession without an outcome, including the last one
	cancelled      bool
	outcomes       int
	bytes          int // size of the history

	now    Instant
	random uint64

	children              []childRun // child runs that have not ended, as far as the run knows
	parent                parentRun
	signals               []signalled
	signalBytes           int
	events, emitted, sent int // number of events, their bytes, and the bytes of sends in the current command
	timers                int // number of timers set and cancelled in the current command
}

// unloaded is the value with which steps panic in a function that must not act
// any more, because the run leaves memory, differs from its history or has
// ended. If a deferred function makes a step, that step panics with this value
// again.
type unloaded struct{}

// start begins the coroutine. It does not run the function yet.
func (r *run) start() {
	r.next, r.stop = iter.Pull(func(yield func(struct{}) bool) {
		r.yield = yield
		defer func() {
			p := recover()
			switch {
			case r.halted || p == nil:
			case r.ending != nil:
				r.over, r.result, r.err = true, nil, r.ending
			default:
				r.panicked = panicText(p)
			}
		}()
		result, err := r.body(&Flow{r})
		if r.ending != nil { // even if the function has recovered
			result, err = nil, r.ending
		}
		if !r.halted {
			r.over, r.result, r.err = true, result, err
		}
	})
}

// resume lets the function run until it waits.
func (r *run) resume(now int64) {
	if r.halted || r.over || r.paused || r.restart != nil || r.panicked != "" {
		return
	}
	r.asks, r.askBytes, r.now = 0, 0, Instant(now)
	r.next()
}

// decide answers the function's question about a patch, and lets the function
// run until it waits. If a run that has the patch then makes a step, it
// continues in another command, because this command may already contain the
// steps that follow another event.
func (r *run) decide(has bool, now int64) {
	if r.patches == nil {
		r.patches = map[string]bool{}
	}
	r.patches[r.patch], r.patch = has, ""
	if has {
		r.steps++
		r.asks, r.now = maxAsks, Instant(now)
	}
	if !r.halted && !r.over && r.panicked == "" {
		r.next()
	}
}

// lacks answers no to the function's questions about patches, because the
// history continues without these patches.
func (r *run) lacks() {
	for r.patch != "" && len(r.made) == 0 && !r.halted {
		r.decide(false, 0)
	}
}

// halt ends the function without letting it act.
func (r *run) halt() {
	if r.halted = true; r.stop != nil {
		r.stop()
	}
}

// differ records the first difference between the function and the history, and
// ends the function.
func (r *run) differ(number int, what string) {
	if r.fault == "" {
		r.fault = "run " + r.id + ", step " + strconv.Itoa(number) + ": " + what
		r.halt()
	}
}

// check panics if the function must not act any more.
func (r *run) check() {
	if r.halted || r.ending != nil {
		panic(unloaded{})
	}
}

// end ends the run with an error, regardless of what the function does.
func (r *run) end(err error) {
	r.ending = err
	panic(unloaded{})
}

// block waits until the function is resumed.
func (r *run) block() {
	if !r.yield(struct{}{}) {
		r.halted = true
	}
	r.check()
}

// ask makes a step.
func (r *run) ask(s *step) *step {
	r.check()
	if r.asks >= maxAsks || r.askBytes >= maxAskBytes {
		r.paused = true
		r.block()
	}
	if r.steps-r.base >= maxSteps || r.bytes > maxHistoryBytes {
		r.end(&Rejection{CodeTooManySteps, "a run has at most " + strconv.Itoa(maxSteps) + " steps and 8 MiB of history since its last checkpoint: call Flow.Checkpoint"})
	}
	r.asks++
	r.askBytes += len(s.payload)
	r.steps++
	s.number = r.steps
	r.made = append(r.made, s)
	return s
}

// await waits for the outcome of a step.
func (r *run) await(s *step) {
	r.check()
	for !s.done {
		r.block()
	}
}

// settle sets the outcome of a step, which is pending.
func (r *run) settle(s *step, code, message string, value []byte) {
	r.outcomes++
	s.done, s.order, s.code, s.message, s.value = true, r.outcomes, code, message, value
	for i := range r.pending {
		if r.pending[i] == s {
			r.pending = append(r.pending[:i:i], r.pending[i+1:]...)
			break
		}
	}
}

// find returns the pending step with the given number, or nil if there is none.
func (r *run) find(number int) *step {
	for _, s := range r.pending {
		if s.number == number {
			return s
		}
	}
	return nil
}

// panicText describes a panic, and where it happened.
func panicText(p any) string {
	text := "panic"
	switch v := p.(type) {
	case error:
		text += ": " + v.Error()
	case string:
		text += ": " + v
	case interface{ String() string }:
		text += ": " + v.String()
	}
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") && !strings.Contains(f.Function, "guest-sdk/go.") {
			return text + " [" + f.File[strings.LastIndexByte(f.File, '/')+1:] + ":" + strconv.Itoa(f.Line) + "]"
		}
		if !more {
			return text
		}
	}
}

// ID returns the run's id.
func (f *Flow) ID() string { return f.run.id }

// Now returns the time of the command with which the run continues. The time is
// stored, so a replay returns the same time.
func (f *Flow) Now() Instant {
	f.run.check()
	return f.run.now
}

// Random returns the next number of the run's own random sequence, which a
// replay repeats. It is not suitable for secrets.
func (f *Flow) Random() uint64 {
	f.run.check()
	f.run.random += 0x9e3779b97f4a7c15
	z := f.run.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// UUID returns a version 4 UUID from the sequence of Random.
func (f *Flow) UUID() string {
	const digits = "0123456789abcdef"
	a, b := f.Random(), f.Random()
	var id [16]byte
	for i := range 8 {
		id[i], id[8+i] = byte(a>>(8*i)), byte(b>>(8*i))
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	out := make([]byte, 0, 36)
	for i, c := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			out = append(out, '-')
		}
		out = append(out, digits[c>>4], digits[c&15])
	}
	return string(out)
}

// Cancelled reports whether the run was cancelled. A cancellation ends the
// waits that are pending at that time with CodeCancelled, unless they are
// [NonCancellable]. Later steps work as usual, so that the function can undo its
// earlier steps.
func (f *Flow) Cancelled() bool {
	f.run.check()
	return f.run.cancelled
}

// Checkpoint ends the function and starts it again with a new input, which must
// have the type of the function's input. If it succeeds, it does not return.
// The run keeps its id, the signals that it has not received, and Cancelled.
// Its earlier history is no longer needed: loading, the compatibility check of
// a new module, and the limits of steps and bytes start at the checkpoint. A
// run that continues for years therefore makes checkpoints, with an input that
// records its progress:
//
//	return out, f.Checkpoint(next)
//
// It panics if a call or a child run has no outcome yet. Other steps without an
// outcome are dropped. Checkpoint returns an error with CodeCheckpointTooLarge,
// and the function continues, if there is too much to store.
func (f *Flow) Checkpoint(input any) error {
	r := f.run
	r.check()
	if is := reflect.TypeOf(input); is != r.flow.inType {
		panic("hostd: a checkpoint of " + r.def.name + " needs a value of type " + r.flow.inType.String())
	}
	for _, steps := range [][]*step{r.made, r.pending} {
		for _, s := range steps {
			if s.kind == stepCall || s.kind == stepRun {
				panic("hostd: a checkpoint of " + r.def.name + " while step " + strconv.Itoa(s.number) + ", " + s.text() + ", has no outcome: wait for it")
			}
		}
	}
	value, err := r.def.encode(nil, input)
	if err == nil {
		err = r.flow.decodable(value)
	}
	if err != nil {
		panic("hostd: a checkpoint of " + r.def.name + ": " + err.Error())
	}
	e := &runCheckpoint{Value: value, Input: r.input, Incarnation: r.incarnation, Random: r.random, Step: r.steps, Cancelled: r.cancelled, Children: r.children, Parent: r.parent}
	if r.outcomes == 0 {
		e.Idle = r.idle + 1
	}
	for _, q := range r.signals {
		e.Signals = append(e.Signals, Signal{q.name, q.value})
	}
	encoded, err := r.def.encode(nil, *e)
	if err != nil {
		panic("hostd: a checkpoint of " + r.def.name + ": " + err.Error())
	}
	if len(encoded) > maxCheckpoint {
		return &Rejection{CodeCheckpointTooLarge, "the checkpoint has " + strconv.Itoa(len(encoded)) + " bytes, of which " + strconv.Itoa(len(value)) + " are the input, limit " + strconv.Itoa(maxCheckpoint)}
	}
	r.restart = e
	r.block()
	return nil // never reached: the history continues with a new call of the function
}

// Patched reports whether the run has the patch with an id, so that one function
// can continue runs from before and after a change:
//
//	if f.Patched("new-limits") {
//		// as it is now
//	} else {
//		// as it was
//	}
//
// A run has the patch if it had not reached this place when the module with the
// patch began to serve; its history records that. The answer for an id stays
// the same until the run ends or makes a checkpoint. Remove the call and the
// old code when no open run needs them. A cluster does not activate a module
// without a patch that an open run has. A run can ask about at most 32 patches.
func (f *Flow) Patched(id string) bool {
	r := f.run
	r.check()
	has, known := r.patches[id]
	if known {
		return has
	}
	if id == "" || len(id) > abi.MaxNameBytes {
		panic("hostd: the id of a patch has 1 to 255 bytes")
	}
	if len(r.patches) == maxPatches {
		panic("hostd: " + r.def.name + " asks about more than " + strconv.Itoa(maxPatches) + " patches")
	}
	r.patch = id
	for r.patch != "" {
		r.block()
	}
	return r.patches[id]
}

// Sleep waits. It returns an error only if the run is cancelled.
func (f *Flow) Sleep(d Duration) error {
	return f.After(d).wait()
}

// SleepUntil waits until a time. It returns an error only if the run is
// cancelled.
func (f *Flow) SleepUntil(at Instant) error {
	s := f.run.ask((&step{kind: stepSleep, due: at}).sum(1, int64(at)))
	f.run.await(s)
	return s.err()
}

// Send sends a command to an entity and does not wait for its outcome. It
// returns an error only if the payload is too large.
func (f *Flow) Send(entityType, entityID, command string, payload any) error {
	s, err := f.message(stepSend, entityType, entityID, command, payload)
	if err == nil {
		f.run.ask(s.sum())
	}
	return err
}

// message returns the step that sends a command.
func (f *Flow) message(kind, entityType, entityID, command string, payload any) (*step, error) {
	f.run.check()
	encoded, err := f.run.def.encode(nil, payload)
	if err != nil {
		panic("hostd: " + f.run.def.name + ": payload: " + err.Error())
	}
	if len(encoded) > 64<<10 {
		return nil, &Rejection{CodePayloadTooLarge, command + " for " + entityType + " has a payload of " + strconv.Itoa(len(encoded)) + " bytes, limit 65536"}
	}
	return &step{kind: kind, typ: entityType, id: entityID, name: command, payload: encoded}, nil
}

// StepOption changes how a step waits.
type StepOption func(*step)

// Within limits the time for which a step waits. After that time, the step
// fails with CodeDeadlineExceeded.
func Within(d Duration) StepOption {
	return func(s *step) { s.within = d }
}

// NonCancellable keeps the step waiting if the run is cancelled. It is for
// commands whose outcome the function must know, such as a payment: a cancelled
// wait does not undo a command that was sent. The function can check
// [Flow.Cancelled] after the step.
func NonCancellable() StepOption {
	return func(s *step) { s.shielded = true }
}

// retry is a policy of retries.
type retry struct {
	initial, most Duration
	attempts      int
	codes         []string
}

// Retry repeats a call that failed with one of the codes, or with "internal",
// which means that the called entity failed. It makes at most the given number
// of attempts. It waits for initial before the second attempt, and twice as
// long before each later attempt, up to most.
func Retry(attempts int, initial, most Duration, codes ...string) StepOption {
	return func(s *step) {
		sorted := slices.Clone(codes) // the order of the codes has no effect, so it may change
		slices.Sort(sorted)
		s.retry = &retry{initial: initial, most: most, attempts: attempts, codes: slices.Compact(sorted)}
	}
}

// wait returns how long to wait before the attempt after the given attempt, and
// false if there is no further attempt.
func (t *retry) wait(attempt int, code string) (Duration, bool) {
	if t == nil || attempt >= t.attempts {
		return 0, false
	}
	retried := code == "internal"
	for _, c := range t.codes {
		retried = retried || c == code
	}
	d := max(t.initial, Millisecond)
	for range attempt - 1 {
		if d >= t.most {
			break
		}
		d = Duration(addSaturating(int64(d), int64(d)))
	}
	return min(d, max(t.most, t.initial, Millisecond)), retried
}

// numbers returns the parts of the retry policy that must not change while a
// step waits.
func (s *step) numbers() []int64 {
	n := []int64{int64(s.within)}
	if s.retry != nil {
		n = append(n, int64(s.retry.initial), int64(s.retry.most), int64(s.retry.attempts))
	}
	return n
}

// Pending is a step that may not have an outcome yet.
type Pending[R any] struct {
	run  *run
	step *step
	err  error
}

// Awaitable is a *Pending of any result.
type Awaitable interface{ parts() (*run, *step, error) }

func (p *Pending[R]) parts() (*run, *step, error) { return p.run, p.step, p.err }

func (p *Pending[R]) wait() error {
	if p.err == nil {
		p.run.await(p.step)
		p.err = p.step.err()
	}
	return p.err
}

// Result waits for the outcome of the step and returns it.
func (p *Pending[R]) Result() (R, error) {
	var out R
	if err := p.wait(); err != nil {
		return out, err
	}
	return out, p.run.def.decodeTo(&out, p.step.value)
}

// Begin sends a command to an entity and returns without waiting for its
// outcome, so that several calls run at the same time.
func Begin[R any](f *Flow, entityType, entityID, command string, payload any, options ...StepOption) *Pending[R] {
	s, err := f.message(stepCall, entityType, entityID, command, payload)
	if err != nil {
		return &Pending[R]{run: f.run, err: err}
	}
	for _, option := range options {
		option(s)
	}
	return &Pending[R]{run: f.run, step: f.run.ask(s.sum(s.numbers()...))}
}

// Call sends a command to an entity and waits for its outcome: the reply, or a
// *Rejection with the code of the entity.
func Call[R any](f *Flow, entityType, entityID, command string, payload any, options ...StepOption) (R, error) {
	return Begin[R](f, entityType, entityID, command, payload, options...).Result()
}

// ParentClose determines what happens to a child run if its parent ends before
// it does.
type ParentClose string

// What happens to a child run when its parent ends.
const (
	ChildTerminates  ParentClose = "terminate" // the default, as in Temporal
	ChildIsCancelled ParentClose = "cancel"
	ChildContinues   ParentClose = "abandon"
)

// OnParentEnd sets what happens to a child run if its parent ends before it
// does.
func OnParentEnd(p ParentClose) StepOption {
	return func(s *step) { s.close = p }
}

// BeginRun starts a run of a workflow type as a child and returns without
// waiting for its end. The child's type may belong to a different module. If
// that type declares Sends, they must include the type of the parent, because
// the child reports its end to the parent. Children may be nested 32 levels
// deep; a child that is nested deeper fails with the code too_deep. If the id
// was used before, the child fails with already_started.
//
// If the step's time limit passes or the run is cancelled, the child continues
// until the parent ends: see OnParentEnd.
func BeginRun[R any](f *Flow, workflowType, id string, input any, options ...StepOption) *Pending[R] {
	s, err := f.message(stepRun, workflowType, id, "", input)
	if err == nil && len(s.payload) > maxStepBytes {
		err = &Rejection{CodePayloadTooLarge, "the input of the child run has " + strconv.Itoa(len(s.payload)) + " bytes, limit 49152"}
	}
	if err == nil && len(f.run.children)+f.run.starting() >= maxChildren {
		err = &Rejection{CodeTooManyChildren, "the run has " + strconv.Itoa(maxChildren) + " child runs that have not ended"}
	}
	if err != nil {
		return &Pending[R]{run: f.run, err: err}
	}
	s.close = ChildTerminates
	for _, option := range options {
		option(s)
	}
	if s.retry = nil; s.close != ChildTerminates && s.close != ChildIsCancelled && s.close != ChildContinues {
		panic("hostd: OnParentEnd(" + strconv.Quote(string(s.close)) + ") is not known")
	}
	return &Pending[R]{run: f.run, step: f.run.ask(s.sum(int64(s.within), int64(len(s.close))))}
}

// starting returns the number of child runs that are not in the history yet.
func (r *run) starting() (n int) {
	for _, s := range r.made {
		if s.kind == stepRun {
			n++
		}
	}
	return n
}

// Run starts a run of a workflow type as a child and waits for its end. It
// returns the child's result, or a *Rejection with the code with which the
// child failed.
func Run[R any](f *Flow, workflowType, id string, input any, options ...StepOption) (R, error) {
	return BeginRun[R](f, workflowType, id, input, options...).Result()
}

// After returns a step that succeeds after a time.
func (f *Flow) After(d Duration) *Pending[None] {
	f.run.check()
	s := (&step{kind: stepSleep, due: f.run.now.Add(max(d, 0))}).sum(int64(d))
	return &Pending[None]{run: f.run, step: f.run.ask(s)}
}

// Receive returns a step that succeeds with the next signal that has the given
// name.
func Receive[T any](f *Flow, name string, options ...StepOption) *Pending[T] {
	s := &step{kind: stepWait, name: name}
	for _, option := range options {
		option(s)
	}
	s.retry = nil
	return &Pending[T]{run: f.run, step: f.run.ask(s.sum(int64(s.within)))}
}

// Wait waits for the next signal with the given name. Signals that arrived
// earlier are queued, in order.
func Wait[T any](f *Flow, name string, options ...StepOption) (T, error) {
	return Receive[T](f, name, options...).Result()
}

// All waits until all steps have an outcome, and returns the error of the first
// step that failed.
func All(f *Flow, steps ...Awaitable) error {
	var first error
	order := 0
	for _, p := range steps {
		r, s, err := p.parts()
		if err == nil {
			r.await(s)
			err = s.err()
		}
		at := 0
		if s != nil {
			at = s.order
		}
		if err != nil && (first == nil || at < order) {
			first, order = err, at
		}
	}
	f.run.check()
	return first
}

// Race waits until one of the steps has an outcome, and returns the index of
// that step. If several steps have outcomes, it is the step whose outcome is
// first in the run's history. Race returns -1 if there are no steps. The other
// steps continue.
func Race(f *Flow, steps ...Awaitable) int {
	f.run.check()
	for len(steps) > 0 {
		first, order := -1, 0
		for i, p := range steps {
			_, s, err := p.parts()
			switch {
			case s == nil && err != nil:
				return i
			case s.done && (first < 0 || s.order < order):
				first, order = i, s.order
			}
		}
		if first >= 0 {
			return first
		}
		f.run.block()
	}
	return -1
}
