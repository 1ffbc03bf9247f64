package hostd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// runHost is the host of one run: it stores what a node would store, and
// delivers outcomes and timers in any order.
type runHost struct {
	t      testing.TB
	rng    *rand.Rand
	guest  *hostd.Guest
	id     string
	events []runEvent
	before uint64 // sequence before the run's first event
	now    int64
	calls  []abi.Send // calls whose outcome is missing
	sends  []abi.Send // sends without an outcome
	resume int        // number of undelivered commands that resume the run
	timers map[string]abi.Timer
	limits abi.Limits
	typ    int32      // index of the run's type in its module
	source abi.Source // source of the commands
}

type runEvent struct {
	typ     string
	payload []byte
	at      int64
	last    bool // the last event of its command
}

func newRunHost(t testing.TB, seed uint64, types ...hostd.Registration) *runHost {
	h := &runHost{t: t, rng: rand.New(rand.NewPCG(seed, 7)), guest: hostd.NewGuest("test", "", types...), id: "r1", now: 1_767_225_600_000_000_000,
		timers: map[string]abi.Timer{}, limits: abi.DefaultLimits(), source: abi.Source{Kind: abi.SourceClient}}
	h.load(h.guest)
	return h
}

// load replays the run, from its first event or from any checkpoint, in batches
// of random sizes.
func (h *runHost) load(g *hostd.Guest) {
	h.t.Helper()
	from := []int{0}
	for i, e := range h.events {
		if e.typ == abi.RunCheckpoint {
			if !e.last {
				h.t.Fatalf("event %d is a checkpoint, and not the last event of its command", i+1)
			}
			from = append(from, i+1)
		}
	}
	h.loadFrom(g, from[h.rng.IntN(len(from))])
}

// loadFrom replays the run from its first event, or from a checkpoint.
func (h *runHost) loadFrom(g *hostd.Guest, at int) {
	h.t.Helper()
	input := abi.AppendSequence(abi.AppendEntityID(nil, h.id), uint64(at))
	if at > 0 {
		input = abi.AppendSnapshot(input, h.events[at-1].payload)
	}
	if status := g.Load(h.typ, 0, input); status != abi.LoadDone {
		h.t.Fatalf("load: %d", status)
	}
	for at < len(h.events) {
		var batch []byte
		for n := 1 + h.rng.IntN(5); n > 0 && at < len(h.events); n-- {
			e := h.events[at]
			at++
			batch = abi.AppendInputEvent(batch, h.before+uint64(at), e.at, e.typ, e.payload)
		}
		if status := g.Apply(0, batch); status != abi.ApplyDone {
			h.t.Fatalf("apply: %d", status)
		}
	}
}

// passivate drops the run and loads it again. The state must be the same.
func (h *runHost) passivate() {
	h.t.Helper()
	was := bytes.Clone(h.guest.Snapshot(0))
	h.guest.Drop(0)
	h.load(h.guest)
	if is := h.guest.Snapshot(0); !bytes.Equal(was, is) {
		h.t.Fatalf("the replayed state differs:\nlive   %s\nreplay %s", was, is)
	}
}

// handle runs a command and stores its output.
func (h *runHost) handle(name string, payload, token []byte) *abi.Output {
	h.t.Helper()
	h.now += 1 + h.rng.Int64N(1_000_000)
	in := abi.AppendSequence(nil, h.before+uint64(len(h.events)))
	in = abi.AppendName(in, name)
	in = abi.AppendPayload(in, payload)
	in = abi.AppendNow(in, h.now)
	in = abi.AppendSeed(in, h.rng.Uint64())
	in = abi.AppendSource(in, h.source)
	if token != nil {
		in = abi.AppendToken(in, token)
	}
	out := new(abi.Output)
	if err := abi.ParseOutput(out, bytes.Clone(h.guest.Handle(0, in)), abi.HandleEvents, &h.limits); err != nil {
		h.t.Fatalf("%s: %v", name, err)
	}
	if out.Rejected {
		return out
	}
	for i, e := range out.Events {
		h.events = append(h.events, runEvent{string(e.Type), e.Payload, h.now, i == len(out.Events)-1})
	}
	for _, s := range out.Sends {
		switch {
		case s.WantsAnswer:
			h.calls = append(h.calls, s)
		case string(s.Command) == "hostd-resume":
			h.resume++
		default:
			h.sends = append(h.sends, s)
		}
	}
	for _, timer := range out.Timers {
		if delete(h.timers, string(timer.Name)); !timer.Cancel {
			h.timers[string(timer.Name)] = timer
		}
	}
	return out
}

// step delivers a random outcome, timer or resumption. It returns false if
// nothing is left to deliver.
func (h *runHost) step(answer func(s abi.Send) (reply []byte, code string)) bool {
	h.t.Helper()
	if h.rng.IntN(4) == 0 {
		h.passivate()
	}
	names := make([]string, 0, len(h.timers))
	for name := range h.timers {
		names = append(names, name)
	}
	slices.Sort(names)
	left := len(h.calls) + len(names) + min(h.resume, 1)
	if left == 0 {
		return false
	}
	switch n := h.rng.IntN(left); {
	case n < len(h.calls):
		s := h.calls[n]
		h.calls = slices.Delete(h.calls, n, n+1)
		if reply, code := answer(s); code != "" {
			h.handle(string(s.OnReject), fmt.Appendf(nil, `{"code":%q,"message":"no"}`, code), s.Token)
		} else {
			h.handle(string(s.OnReply), reply, s.Token)
		}
	case n < len(h.calls)+len(names):
		timer := h.timers[names[n-len(h.calls)]]
		delete(h.timers, string(timer.Name))
		h.now = max(h.now, timer.Due)
		h.handle(string(timer.Command), timer.Payload, nil)
	default:
		h.resume--
		h.handle("hostd-resume", nil, nil)
	}
	return true
}

// state queries the run.
func (h *runHost) state() (s hostd.RunState) {
	h.t.Helper()
	out := new(abi.Output)
	in := abi.AppendNow(abi.AppendName(abi.AppendSequence(nil, uint64(len(h.events))), "state"), h.now)
	if err := abi.ParseOutput(out, bytes.Clone(h.guest.Query(0, in)), abi.QueryOnly, &h.limits); err != nil {
		h.t.Fatal(err)
	}
	if err := json.Unmarshal(out.Reply, &s); err != nil {
		h.t.Fatal(err)
	}
	return s
}

// count returns how many events of a type the run has.
func (h *runHost) count(typ string) (n int) {
	for _, e := range h.events {
		if e.typ == typ {
			n++
		}
	}
	return n
}

type number struct {
	N int64 `json:"n"`
}

// double answers a call. The answer depends on the payload, so that a run can
// check that an outcome belongs to its step.
func double(s abi.Send) ([]byte, string) {
	var in number
	if err := json.Unmarshal(s.Payload, &in); err != nil {
		panic(err)
	}
	if in.N%7 == 3 {
		return nil, "unlucky"
	}
	return fmt.Appendf(nil, `{"n":%d}`, 2*in.N+1), ""
}

// checked returns an error if the outcome does not belong to the call with n.
func checked(n int64, got number, err error) (int64, error) {
	switch rejection, rejected := err.(*hostd.Rejection); {
	case rejected && rejection.Code == hostd.CodeDeadlineExceeded:
		return 0, nil
	case rejected && n%7 == 3 && rejection.Code == "unlucky":
		return 1, nil
	case err != nil:
		return 0, err
	case n%7 == 3 || got.N != 2*n+1:
		return 0, hostd.Reject("mixed", fmt.Sprintf("the call of %d got %d", n, got.N))
	}
	return got.N, nil
}

// mixed makes calls one after another and at the same time, all to one entity
// and one command, with time limits, retries and races.
func mixed() *hostd.Type[hostd.RunState] {
	return hostd.Workflow("mixed", func(f *hostd.Flow, in number) (number, error) {
		sum := int64(0)
		call := func(n int64, options ...hostd.StepOption) *hostd.Pending[number] {
			return hostd.Begin[number](f, "adder", "a", "double", number{n}, options...)
		}
		for i := range in.N {
			switch f.Random() % 5 {
			case 0:
				got, err := call(i, hostd.Within(hostd.Second)).Result()
				n, err := checked(i, got, err)
				if sum += n; err != nil {
					return number{}, err
				}
			case 1:
				var all []*hostd.Pending[number]
				for j := range int64(4) {
					all = append(all, call(i+j, hostd.Retry(3, hostd.Second, hostd.Minute, "unlucky")))
				}
				for j, p := range all {
					got, err := p.Result()
					n, err := checked(i+int64(j), got, err)
					if sum += n; err != nil {
						return number{}, err
					}
				}
			case 2:
				a, b := call(i), call(i+1)
				if hostd.Race(f, a, b, f.After(hostd.Second)) == 1 {
					got, err := b.Result()
					if _, err = checked(i+1, got, err); err != nil {
						return number{}, err
					}
				}
			case 3:
				if err := f.Sleep(hostd.Second); err != nil {
					return number{}, err
				}
			case 4:
				if _, err := hostd.Wait[number](f, "go", hostd.Within(hostd.Minute)); err != nil {
					if r, ok := err.(*hostd.Rejection); !ok || r.Code != hostd.CodeDeadlineExceeded {
						return number{}, err
					}
				}
			}
		}
		return number{sum}, nil
	})
}

// TestOutcomesReachTheirSteps runs workflows whose calls are answered in any
// order, late, and after their steps are over, while the runs are passivated
// and replayed in any batches. Every outcome must reach the step and attempt to
// which it belongs, or none at all.
func TestOutcomesReachTheirSteps(t *testing.T) {
	total := map[string]int{}
	for seed := range uint64(300) {
		h := newRunHost(t, seed, mixed())
		h.before = seed % 3
		var late []abi.Send
		h.handle("start", []byte(`{"n":12}`), nil)
		for h.state().Status == hostd.RunRunning {
			switch h.rng.IntN(6) {
			case 0:
				if out := h.handle("signal", []byte(`{"name":"go","value":{"n":1}}`), nil); out.Rejected {
					t.Fatalf("seed %d: signal: %s", seed, out.Reject.Code)
				}
			case 1:
				if len(late) > 0 { // answer a call a second time; no step waits for this outcome
					s := late[h.rng.IntN(len(late))]
					n := len(h.events)
					if h.handle(string(s.OnReply), []byte(`{"n":-1}`), s.Token); len(h.events) != n {
						t.Fatalf("seed %d: an outcome counts twice", seed)
					}
					total["twice"]++
				}
			default:
				if !h.step(func(s abi.Send) ([]byte, string) { late = append(late, s); return double(s) }) && h.state().Status == hostd.RunRunning {
					h.handle("signal", []byte(`{"name":"go","value":{"n":1}}`), nil)
				}
			}
		}
		s := h.state()
		if s.Status != hostd.RunCompleted {
			t.Fatalf("seed %d: %+v", seed, s)
		}
		h.passivate()
		for _, s := range h.calls { // outcomes that arrive after the end
			n := len(h.events)
			if out := h.handle(string(s.OnReply), []byte(`{"n":-1}`), s.Token); out.Rejected || len(h.events) != n {
				t.Fatalf("seed %d: an outcome after the end: %+v", seed, out)
			}
			total["after the end"]++
		}
		total["retried"] += h.count("retried")
		total["came"] += h.count("came")
		total["signalled"] += h.count("signalled")
	}
	for _, name := range []string{"twice", "after the end", "retried", "came", "signalled"} {
		if total[name] == 0 {
			t.Errorf("no outcome of kind %q: %v", name, total)
		}
	}
}

// payout returns a workflow. Tests replay its runs with changed versions of the
// function.
func payout(body func(f *hostd.Flow) error) *hostd.Type[hostd.RunState] {
	return hostd.Workflow("payout", func(f *hostd.Flow, _ number) (hostd.None, error) { return hostd.None{}, body(f) })
}

func withdraw(f *hostd.Flow, id string, n int64) error {
	_, err := hostd.Call[number](f, "account", id, "withdraw", number{n})
	return err
}

// TestChangedFunctionsAreFound replays a run with changed functions. If a step
// in the history was changed, including the step that the run waits for, the
// error names the run and the step. A change after that step is accepted.
func TestChangedFunctionsAreFound(t *testing.T) {
	first := func(f *hostd.Flow) error {
		if err := withdraw(f, "a", 1); err != nil {
			return err
		}
		if err := f.Sleep(hostd.Second); err != nil {
			return err
		}
		return withdraw(f, "b", 2)
	}
	h := newRunHost(t, 1, payout(first))
	h.handle("start", []byte(`{"n":1}`), nil)
	for h.count("asked") < 3 {
		h.step(double)
	}
	for _, tt := range []struct {
		name string
		body func(f *hostd.Flow) error
		want string
	}{
		{"unchanged", first, ""},
		{"later step added", func(f *hostd.Flow) error {
			if err := first(f); err != nil {
				return err
			}
			return withdraw(f, "c", 3)
		}, ""},
		{"pending step calls another entity", func(f *hostd.Flow) error {
			_ = withdraw(f, "a", 1)
			_ = f.Sleep(hostd.Second)
			return withdraw(f, "c", 2)
		}, "run r1, step 3: the code asks for call account/c withdraw, the history has call account/b withdraw"},
		{"pending step has another payload", func(f *hostd.Flow) error {
			_ = withdraw(f, "a", 1)
			_ = f.Sleep(hostd.Second)
			return withdraw(f, "b", 3)
		}, "run r1, step 3: the code asks for call account/b withdraw with another payload or time"},
		{"finished step has another payload", func(f *hostd.Flow) error {
			_ = withdraw(f, "a", 5)
			_ = f.Sleep(hostd.Second)
			return withdraw(f, "b", 2)
		}, "run r1, step 1: the code asks for call account/a withdraw with another payload or time"},
		{"step removed", func(f *hostd.Flow) error {
			_ = withdraw(f, "a", 1)
			return withdraw(f, "b", 2)
		}, "run r1, step 2: the code asks for call account/b withdraw, the history has sleep"},
		{"step inserted", func(f *hostd.Flow) error {
			_ = withdraw(f, "a", 1)
			_ = f.Send("log", "l", "note", number{1})
			_ = f.Sleep(hostd.Second)
			return withdraw(f, "b", 2)
		}, "run r1, step 2: the code asks for send log/l note, the history has sleep"},
		{"other duration", func(f *hostd.Flow) error {
			_ = withdraw(f, "a", 1)
			_ = f.Sleep(hostd.Minute)
			return withdraw(f, "b", 2)
		}, "run r1, step 2: the code asks for sleep with another payload or time"},
		{"pending step removed", func(f *hostd.Flow) error {
			_ = withdraw(f, "a", 1)
			return f.Sleep(hostd.Second)
		}, "run r1, step 3: the code returns, the history has call account/b withdraw"},
		{"step made at the same time as the pending one", func(f *hostd.Flow) error {
			_ = withdraw(f, "a", 1)
			_ = f.Sleep(hostd.Second)
			p := hostd.Begin[number](f, "account", "b", "withdraw", number{2})
			q := hostd.Begin[number](f, "account", "b", "withdraw", number{3})
			return hostd.All(f, p, q)
		}, "run r1, step 4: the code asks for call account/b withdraw, the history ends there"},
		{"panic in the replayed part", func(f *hostd.Flow) error {
			_ = withdraw(f, "a", 1)
			panic("broken")
		}, "run r1, step 2: panic: broken [workflow_test.go:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := hostd.NewGuest("test", "", payout(tt.body))
			defer func() {
				text := ""
				if p := recover(); p != nil {
					text = fmt.Sprint(p)
				}
				if (tt.want == "") != (text == "") || !strings.Contains(text, tt.want) {
					t.Errorf("got %q, want %q", text, tt.want)
				}
			}()
			h.load(g)
			if state := string(g.Snapshot(0)); strings.Contains(state, "ahead") {
				panic(state) // the host compares this with the state of the module that wrote the history
			}
		})
	}
}

// TestRetryPoliciesAreCompared replays a run that waits for a call with
// retries. A function with a different policy differs from the history, because
// the attempts of the pending step would then follow a different policy than
// the step asked for. The order of the codes does not matter.
func TestRetryPoliciesAreCompared(t *testing.T) {
	call := func(option hostd.StepOption) *hostd.Type[hostd.RunState] {
		return payout(func(f *hostd.Flow) error {
			_, err := hostd.Call[number](f, "account", "a", "deposit", number{1}, option)
			return err
		})
	}
	h := newRunHost(t, 1, call(hostd.Retry(3, hostd.Second, hostd.Minute, "busy", "full")))
	h.handle("start", nil, nil)
	for _, tt := range []struct {
		option hostd.StepOption
		same   bool
	}{
		{hostd.Retry(3, hostd.Second, hostd.Minute, "busy", "full"), true},
		{hostd.Retry(3, hostd.Second, hostd.Minute, "full", "busy", "full"), true},
		{hostd.Retry(3, hostd.Second, hostd.Minute, "busy"), false},
		{hostd.Retry(3, hostd.Second, hostd.Minute, "busy", "full", "late"), false},
		{hostd.Retry(3, hostd.Second, hostd.Minute, "busyfull"), false},
		{hostd.Retry(4, hostd.Second, hostd.Minute, "busy", "full"), false},
		{hostd.Retry(3, hostd.Second, hostd.Hour, "busy", "full"), false},
	} {
		difference := func() (text string) {
			defer func() {
				if p := recover(); p != nil {
					text = fmt.Sprint(p)
				}
			}()
			g := hostd.NewGuest("test", "", call(tt.option))
			h.load(g)
			g.Snapshot(0)
			return ""
		}()
		if tt.same != (difference == "") || !tt.same && !strings.Contains(difference, "run r1, step 1: the code asks for call account/a deposit with another payload or time") {
			t.Errorf("got %q, the same: %v", difference, tt.same)
		}
	}
}

// TestEndedRunsNeedNoFunction replays an ended run with a function that makes
// different steps. The result of the run is still available.
func TestEndedRunsNeedNoFunction(t *testing.T) {
	h := newRunHost(t, 1, payout(func(f *hostd.Flow) error { return withdraw(f, "a", 1) }))
	h.handle("start", nil, nil)
	for h.step(double) {
	}
	if s := h.state(); s.Status != hostd.RunCompleted || s.Steps != 1 {
		t.Fatalf("%+v", s)
	}
	for _, body := range []func(f *hostd.Flow) error{
		func(f *hostd.Flow) error { return f.Sleep(hostd.Hour) },
		func(*hostd.Flow) error { panic("other") },
	} {
		h.guest = hostd.NewGuest("test", "", payout(body))
		h.load(h.guest)
		if s := h.state(); s.Status != hostd.RunCompleted || s.Steps != 1 {
			t.Errorf("%+v", s)
		}
	}
}

// TestUnloadingMakesNoSteps passivates runs whose functions undo their work in
// deferred calls and recover from panics. Unloading a run must not make any of
// these steps.
func TestUnloadingMakesNoSteps(t *testing.T) {
	undone := 0
	h := newRunHost(t, 1, payout(func(f *hostd.Flow) (err error) {
		defer func() {
			_ = recover()
			undone++
			_ = withdraw(f, "undo", 1)
			undone += 100
		}()
		if err := withdraw(f, "a", 1); err != nil {
			return err
		}
		return f.Sleep(hostd.Hour)
	}))
	h.handle("start", nil, nil)
	for i := range 1000 {
		if h.passivate(); undone > 1000 || len(h.calls) != 1 {
			t.Fatalf("after %d passivations: %d calls, %d undone", i, len(h.calls), undone)
		}
	}
	if undone != 1000 {
		t.Errorf("%d deferred calls ran, want 1000: the function is not ended", undone)
	}
}

// TestRunsYield makes 10,000 steps: calls one after another, and then sends
// without waiting. The run distributes the sends over several commands.
func TestRunsYield(t *testing.T) {
	h := newRunHost(t, 1, payout(func(f *hostd.Flow) error {
		for i := range int64(5_000) {
			if _, err := hostd.Call[number](f, "adder", "a", "double", number{7 * i}); err != nil {
				return err
			}
		}
		for i := range int64(5_000) {
			if err := f.Send("log", "l", "note", number{i}); err != nil {
				return err
			}
		}
		return nil
	}))
	h.handle("start", nil, nil)
	for h.resume > 0 || len(h.calls) > 0 {
		if h.resume > 0 {
			h.resume--
			h.handle("hostd-resume", nil, nil)
			continue
		}
		s := h.calls[0]
		h.calls = h.calls[1:]
		reply, _ := double(s)
		h.handle(string(s.OnReply), reply, s.Token)
	}
	if s := h.state(); s.Status != hostd.RunCompleted || s.Steps != 10_000 || len(h.sends) != 5_000 {
		t.Errorf("%+v, %d sends", s, len(h.sends))
	}
	h.passivate()
	if n := h.count("resumed"); n < 5_000/64 {
		t.Errorf("the run was resumed %d times", n)
	}
}

// TestRunsHaveAStepLimit checks that a run ends at its step limit, even if the
// function recovers from all panics.
func TestRunsHaveAStepLimit(t *testing.T) {
	h := newRunHost(t, 1, payout(func(f *hostd.Flow) error {
		defer func() { _ = recover() }()
		for {
			if err := f.Send("log", "l", "note", nil); err != nil {
				return err
			}
		}
	}))
	h.handle("start", nil, nil)
	for h.resume > 0 {
		h.resume--
		h.handle("hostd-resume", nil, nil)
	}
	if s := h.state(); s.Status != hostd.RunFailed || s.Code != hostd.CodeTooManySteps || len(h.sends) != 10_000 {
		t.Errorf("%+v, %d sends", s, len(h.sends))
	}
	h.passivate()
}

// TestSignalsAreQueued checks that signals are received in order, whether they
// arrive before or after the run waits for them, and that the number of queued
// signals is bounded.
func TestSignalsAreQueued(t *testing.T) {
	h := newRunHost(t, 3, hostd.Workflow("collect", func(f *hostd.Flow, in number) (string, error) {
		all := ""
		for range in.N {
			got, err := hostd.Wait[number](f, "next")
			if err != nil {
				return "", err
			}
			all += fmt.Sprint(got.N, " ")
		}
		_, err := hostd.Wait[hostd.None](f, "end")
		return all, err
	}))
	h.handle("start", []byte(`{"n":1200}`), nil)
	want := ""
	send := func(n int) *abi.Output {
		return h.handle("signal", fmt.Appendf(nil, `{"name":"next","value":{"n":%d}}`, n), nil)
	}
	for n := range 1200 {
		if send(n); n%100 == 0 {
			h.passivate()
		}
		want += fmt.Sprint(n, " ")
	}
	for n := range 1001 {
		if out := h.handle("signal", []byte(`{"name":"other"}`), nil); out.Rejected != (n == 1000) || n == 1000 && string(out.Reject.Code) != "resource_exhausted" {
			t.Fatalf("signal %d: %+v", n, out.Reject)
		}
	}
	h.handle("terminate", nil, nil)
	if s := h.state(); s.Status != hostd.RunFailed || s.Code != hostd.CodeTerminated {
		t.Errorf("%+v", s)
	}

	h = newRunHost(t, 4, hostd.Workflow("collect", func(f *hostd.Flow, in number) (string, error) {
		if err := f.Sleep(hostd.Hour); err != nil {
			return "", err
		}
		all := ""
		for range in.N {
			got, err := hostd.Wait[number](f, "next")
			if err != nil {
				return "", err
			}
			all += fmt.Sprint(got.N, " ")
		}
		return all, nil
	}))
	h.handle("start", []byte(`{"n":900}`), nil)
	want = ""
	for n := range 900 {
		send(n)
		want += fmt.Sprint(n, " ")
	}
	for h.step(double) {
	}
	var got string
	if s := h.state(); s.Status != hostd.RunCompleted || json.Unmarshal(s.Result, &got) != nil || got != want {
		t.Errorf("%+v", s)
	}
}

// TestCancelEndsWaitsOnce cancels a run. The steps that it waits for fail, and
// later steps that undo its work succeed.
func TestCancelEndsWaitsOnce(t *testing.T) {
	h := newRunHost(t, 1, hostd.Workflow("payout", func(f *hostd.Flow, _ hostd.None) (string, error) {
		_, err := hostd.Call[number](f, "adder", "a", "double", number{1})
		if err == nil {
			return "", hostd.Reject("unexpected", "the call was not cancelled")
		}
		undo, undoErr := hostd.Call[number](f, "adder", "a", "double", number{2})
		return fmt.Sprint(err, ", ", f.Cancelled(), ", ", undo.N, ", ", undoErr), nil
	}))
	h.handle("start", nil, nil)
	first := h.calls[0]
	h.handle("cancel", nil, nil)
	h.handle("cancel", nil, nil)
	h.handle(string(first.OnReply), []byte(`{"n":3}`), first.Token) // this outcome arrives too late
	h.passivate()
	h.calls = h.calls[1:]
	for h.step(double) {
	}
	var got string
	s := h.state()
	if err := json.Unmarshal(s.Result, &got); err != nil || got != "cancelled: the run was cancelled, true, 5, <nil>" {
		t.Errorf("%q %+v %v", got, s, err)
	}
}

// TestNonCancellableStepsWaitOn cancels a run while it waits for three steps. The
// outcomes of the steps that cannot be cancelled still arrive, also after the
// run was loaded again, and their retries and time limits work.
func TestNonCancellableStepsWaitOn(t *testing.T) {
	h := newRunHost(t, 1, hostd.Workflow("payout", func(f *hostd.Flow, _ hostd.None) (string, error) {
		paid := hostd.Begin[number](f, "adder", "a", "double", number{1}, hostd.NonCancellable(), hostd.Retry(2, hostd.Second, hostd.Second, "busy"))
		other := hostd.Begin[number](f, "adder", "b", "double", number{2})
		signal := hostd.Receive[number](f, "go", hostd.NonCancellable(), hostd.Within(hostd.Minute))
		_, otherErr := other.Result()
		got, err := paid.Result()
		_, signalErr := signal.Result()
		return fmt.Sprint(otherErr, "; ", got.N, err, f.Cancelled(), "; ", signalErr), nil
	}))
	h.handle("start", nil, nil)
	calls := slices.Clone(h.calls)
	h.handle("cancel", nil, nil)
	h.passivate()
	h.handle(string(calls[1].OnReply), []byte(`{"n":5}`), calls[1].Token) // this outcome arrives too late
	h.handle(string(calls[0].OnReject), []byte(`{"code":"busy","message":"later"}`), calls[0].Token)
	h.passivate()
	h.calls = nil
	for h.step(double) {
	}
	var got string
	s := h.state()
	if want := "cancelled: the run was cancelled; 3 <nil> true; deadline_exceeded: the time limit of the step has passed"; json.Unmarshal(s.Result, &got) != nil || got != want {
		t.Errorf("%q %+v", got, s)
	}
}

// TestRunsStartOnce: starting a run again with the same input returns the run,
// and with a different input it is rejected.
func TestRunsStartOnce(t *testing.T) {
	h := newRunHost(t, 1, payout(func(f *hostd.Flow) error { return f.Sleep(hostd.Second) }))
	if out := h.handle("signal", []byte(`{"name":"x"}`), nil); string(out.Reject.Code) != "not_started" {
		t.Errorf("signal before the start: %+v", out.Reject)
	}
	for _, tt := range []struct{ input, code string }{{`{"n":1}`, ""}, {`{"n":1}`, ""}, {`{"n":2}`, "already_started"}} {
		if out := h.handle("start", []byte(tt.input), nil); string(out.Reject.Code) != tt.code {
			t.Errorf("start with %s: %+v", tt.input, out.Reject)
		}
	}
	for h.step(double) {
	}
	if out := h.handle("signal", []byte(`{"name":"x"}`), nil); string(out.Reject.Code) != "ended" {
		t.Errorf("signal after the end: %+v", out.Reject)
	}
	if out := h.handle("start", []byte(`{"n":1}`), nil); out.Rejected || !strings.Contains(string(out.Reply), "completed") {
		t.Errorf("start after the end: %s", out.Reply)
	}
}

// progress is the input of a run that makes checkpoints.
type progress struct {
	N   int64 `json:"n"`
	At  int64 `json:"at,omitempty"`
	Sum int64 `json:"sum,omitempty"`
}

// steady makes N calls, and a checkpoint after every given number of them. It
// receives a signal before each checkpoint, and has timers that are still set
// at the checkpoint.
func steady(every int64, before func(f *hostd.Flow, p progress)) *hostd.Type[hostd.RunState] {
	return hostd.Workflow("steady", func(f *hostd.Flow, p progress) (progress, error) {
		for p.At < p.N {
			before(f, p)
			got, err := hostd.Call[number](f, "adder", "a", "double", number{7 * p.At})
			if err != nil {
				return p, err
			}
			p.At++
			p.Sum += got.N
			if p.At%every == 0 && p.At < p.N {
				f.After(hostd.Hour)
				if err := f.Send("log", "l", "note", p); err != nil {
					return p, err
				}
				return p, f.Checkpoint(p)
			}
		}
		for range 3 {
			got, err := hostd.Wait[number](f, "last")
			if err != nil {
				return p, err
			}
			p.Sum += 1_000_000 * got.N
		}
		if f.Cancelled() {
			p.Sum = -p.Sum
		}
		return p, nil
	})
}

// TestRunsBeginAtCheckpoints runs workflows that make checkpoints, with signals
// that arrive before and after them, while the runs are loaded from their first
// event and from any checkpoint. The state, the steps and the result are the
// same, and each call and send is made once.
func TestRunsBeginAtCheckpoints(t *testing.T) {
	ended := 0 // number of cancelled runs that have ended
	for seed := range uint64(100) {
		h := newRunHost(t, seed, steady(1+int64(seed)%5, func(f *hostd.Flow, _ progress) { f.Random() }))
		h.before = seed % 3
		h.handle("start", []byte(`{"n":20}`), nil)
		want := int64(0)
		for n := range int64(20) {
			want += 14*n + 1
		}
		cancelled := false
		for n := int64(1); h.state().Status == hostd.RunRunning; {
			switch i := h.rng.IntN(12); {
			case i == 0 && n <= 3:
				h.handle("signal", fmt.Appendf(nil, `{"name":"last","value":{"n":%d}}`, n), nil)
				want += 1_000_000 * n
				n++
			case h.step(double):
			case n > 3:
				t.Fatalf("seed %d: the run does not end: %+v", seed, h.state())
			}
			if at := h.count("came"); !cancelled && seed%4 == 0 && at > 8 && len(h.calls) == 0 && h.resume > 0 {
				cancelled = true // cancelled between a checkpoint and the next step
				h.handle("cancel", nil, nil)
			}
		}
		if cancelled {
			want = -want
			ended++
		}
		var got progress
		s := h.state()
		if err := json.Unmarshal(s.Result, &got); err != nil || got.At != 20 || got.Sum != want {
			t.Fatalf("seed %d: %+v, %d signals, want %d: %v", seed, s, h.count("signalled"), want, err)
		}
		checkpoints := 19 / (1 + int(seed)%5)
		if len(h.sends) != checkpoints || h.count(abi.RunCheckpoint) != checkpoints || s.Steps != 20+3+2*checkpoints {
			t.Errorf("seed %d: %d sends, %d checkpoints, %d steps", seed, len(h.sends), h.count(abi.RunCheckpoint), s.Steps)
		}
		for i, e := range h.events {
			if e.typ == abi.RunCheckpoint {
				h.loadFrom(h.guest, i+1)
			}
		}
		if out := h.handle("start", []byte(`{"n":20}`), nil); out.Rejected {
			t.Errorf("seed %d: start with the first input: %s", seed, out.Reject.Code)
		}
		if out := h.handle("start", []byte(`{"n":20,"at":1}`), nil); string(out.Reject.Code) != "already_started" {
			t.Errorf("seed %d: start with another input: %+v", seed, out.Reject)
		}
	}
	if ended == 0 {
		t.Error("no run was cancelled between a checkpoint and its next step")
	}
}

// replayed replays the run with a changed function, and returns the error text
// with which it fails.
func (h *runHost) replayed(from int, changed *hostd.Type[hostd.RunState]) (text string) {
	h.t.Helper()
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	g := hostd.NewGuest("test", "", changed)
	h.loadFrom(g, from)
	var s hostd.RunState
	if err := json.Unmarshal(g.Snapshot(0), &s); err != nil {
		h.t.Fatal(err)
	}
	return s.Ahead
}

// TestCheckpointsForgetSteps replays a run that has made a checkpoint with
// changed functions. A step before the checkpoint may change, no matter where
// the replay begins, and a step after it may not. If the function makes a
// checkpoint that is not in the history, that is a difference.
func TestCheckpointsForgetSteps(t *testing.T) {
	early := func(f *hostd.Flow, p progress) {
		if p.At < 5 {
			_ = f.Send("log", "l", "early", p)
		}
	}
	late := func(f *hostd.Flow, p progress) {
		if p.At >= 5 {
			_ = f.Send("log", "l", "late", p)
		}
	}
	none := func(*hostd.Flow, progress) {}
	h := newRunHost(t, 1, steady(5, none))
	h.handle("start", []byte(`{"n":20}`), nil)
	for h.count("came") < 8 {
		h.step(double)
	}
	h.timers = nil
	at := slices.IndexFunc(h.events, func(e runEvent) bool { return e.typ == abi.RunCheckpoint }) + 1
	for _, tt := range []struct {
		name    string
		changed *hostd.Type[hostd.RunState]
		want    string
	}{
		{"unchanged", steady(5, none), ""},
		{"another step before the checkpoint", steady(5, early), ""},
		{"a panic before the checkpoint", steady(5, func(_ *hostd.Flow, p progress) {
			if p.At < 5 {
				panic("broken")
			}
		}), ""},
		{"another step after the checkpoint", steady(5, late), "run r1, step 8: the code asks for send log/l late, the history has call adder/a double"},
		{"a checkpoint that was not made", steady(7, none), "run r1, step 10: the code asks for sleep, the history has call adder/a double"},
		{"a checkpoint instead of a step", steady(5, func(f *hostd.Flow, p progress) {
			if p.At == 6 {
				_ = f.Checkpoint(p)
			}
		}), "run r1, step 9: the code makes a checkpoint, the history has call adder/a double"},
	} {
		for _, from := range []int{0, at} {
			if got := h.replayed(from, tt.changed); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%s, from event %d: got %q, want %q", tt.name, from, got, tt.want)
			}
		}
	}
	h.events = h.events[:at-1]
	if got := h.replayed(0, steady(5, none)); !strings.Contains(got, "the code makes a checkpoint, the history ends there") {
		t.Errorf("without the checkpoint: %q", got)
	}
}

// TestCheckpointsNeedOutcomes: a checkpoint while a call has no outcome, or
// with a value of the wrong type, panics, which keeps the run open. A
// checkpoint that is too large returns an error, and the function continues.
func TestCheckpointsNeedOutcomes(t *testing.T) {
	for _, tt := range []struct {
		name string
		body func(f *hostd.Flow) error
		want string
	}{
		{"made call", func(f *hostd.Flow) error {
			hostd.Begin[number](f, "adder", "a", "double", number{1})
			return f.Checkpoint(number{})
		}, "while step 1, call adder/a double, has no outcome"},
		{"pending call", func(f *hostd.Flow) error {
			hostd.Begin[number](f, "adder", "a", "double", number{1})
			_ = f.Sleep(hostd.Second)
			return f.Checkpoint(number{})
		}, "while step 1, call adder/a double, has no outcome"},
		{"another type", func(f *hostd.Flow) error { return f.Checkpoint(progress{}) }, "needs a value of type hostd_test.number"},
	} {
		h := newRunHost(t, 1, payout(tt.body))
		text := func() (text string) {
			defer func() { text = fmt.Sprint(recover()) }()
			h.handle("start", []byte(`{"n":1}`), nil)
			for name, timer := range h.timers {
				delete(h.timers, name)
				h.handle(string(timer.Command), timer.Payload, nil)
			}
			return ""
		}()
		if !strings.Contains(text, tt.want) {
			t.Errorf("%s: %q", tt.name, text)
		}
	}

	h := newRunHost(t, 1, hostd.Workflow("large", func(f *hostd.Flow, in string) (string, error) {
		if in != "small" {
			if err := f.Sleep(hostd.Second); err != nil {
				return "", err
			}
			if err := f.Checkpoint("small"); err != nil {
				_, _ = hostd.Wait[string](f, "large")
				return "", f.Checkpoint("small")
			}
		}
		return hostd.Wait[string](f, "large")
	}))
	h.handle("start", []byte(`"large"`), nil)
	for n := range 2 {
		h.handle("signal", fmt.Appendf(nil, `{"name":"large","value":"%d%s"}`, n, strings.Repeat("x", 40<<10)), nil)
	}
	for h.step(double) {
	}
	var got string
	if s := h.state(); s.Status != hostd.RunCompleted || json.Unmarshal(s.Result, &got) != nil || !strings.HasPrefix(got, "1x") || h.count(abi.RunCheckpoint) != 1 {
		t.Errorf("%s %s, %d checkpoints, the result begins with %.5s", s.Status, s.Message, h.count(abi.RunCheckpoint), got)
	}
}

// TestCheckpointsResetLimits makes 25,000 steps, more than a run may make
// without a checkpoint.
func TestCheckpointsResetLimits(t *testing.T) {
	h := newRunHost(t, 1, steady(2_500, func(*hostd.Flow, progress) {}))
	h.handle("start", []byte(`{"n":25000}`), nil)
	for h.resume > 0 || len(h.calls) > 0 {
		if h.resume > 0 {
			h.resume--
			h.handle("hostd-resume", nil, nil)
			continue
		}
		s := h.calls[0]
		h.calls = h.calls[1:]
		reply, _ := double(s)
		h.handle(string(s.OnReply), reply, s.Token)
	}
	if s := h.state(); s.Status != hostd.RunRunning || s.Steps != 25_000+2*9+1 || len(s.WaitsFor) != 1 || s.WaitsFor[0] != "wait last" {
		t.Errorf("%+v", s)
	}
	h.passivate()
}

// TestCheckpointsCompareTheInput replays a run that has made a checkpoint and
// was not resumed, with functions whose input has a different type. A function
// that cannot read the stored input is rejected; the run can still be
// terminated.
func TestCheckpointsCompareTheInput(t *testing.T) {
	type other struct {
		At string `json:"at"`
	}
	type wider struct {
		At    int64 `json:"at"`
		Extra int64 `json:"extra"`
	}
	h := newRunHost(t, 1, steady(1, func(*hostd.Flow, progress) {}))
	h.handle("start", []byte(`{"n":20}`), nil)
	for h.count(abi.RunCheckpoint) == 0 {
		h.step(double)
	}
	reads := func(_ *hostd.Flow, in other) (other, error) { return in, nil }
	widens := func(_ *hostd.Flow, in wider) (wider, error) { return in, nil }
	at := len(h.events)
	if got := h.replayed(at, hostd.Workflow("steady", reads)); !strings.Contains(got, "run r1, step 4: the code cannot read the input of the checkpoint") {
		t.Errorf("another type: %q", got)
	}
	if got := h.replayed(at, hostd.Workflow("steady", widens)); got != "" {
		t.Errorf("a type with another member: %q", got)
	}
	h.guest = hostd.NewGuest("test", "", hostd.Workflow("steady", reads))
	h.loadFrom(h.guest, at)
	if out := h.handle("terminate", nil, nil); out.Rejected || h.count(abi.RunEnded) != 1 {
		t.Errorf("terminate: %+v", out.Reject)
	}
}

// TestIdleCheckpointsAreSpaced: a run that makes checkpoints in succession
// without an outcome between them is resumed by timers, after increasing
// delays. After an outcome it is resumed at once again.
func TestIdleCheckpointsAreSpaced(t *testing.T) {
	h := newRunHost(t, 1, hostd.Workflow("loop", func(f *hostd.Flow, in progress) (progress, error) {
		if in.At++; in.At%10 == 0 {
			if _, err := hostd.Wait[number](f, "go"); err != nil {
				return in, err
			}
		}
		return in, f.Checkpoint(in)
	}))
	h.handle("start", []byte(`{"n":1}`), nil)
	waits := func(checkpoints int) (all []int64) {
		for h.count(abi.RunCheckpoint) < checkpoints {
			h.passivate()
			if h.resume > 0 {
				all = append(all, 0)
				h.resume--
				h.handle("hostd-resume", nil, nil)
				continue
			}
			for name, timer := range h.timers {
				delete(h.timers, name)
				all = append(all, (timer.Due-h.now)/int64(hostd.Second))
				h.now = timer.Due
				h.handle(string(timer.Command), timer.Payload, nil)
			}
		}
		return all
	}
	if got, want := waits(9), []int64{0, 1, 2, 4, 8, 16, 32, 60}; !slices.Equal(got, want) {
		t.Errorf("the checkpoints come after %v s, want %v", got, want)
	}
	for name, timer := range h.timers {
		delete(h.timers, name)
		h.handle(string(timer.Command), timer.Payload, nil)
	}
	h.handle("signal", []byte(`{"name":"go"}`), nil)
	if got, want := waits(12), []int64{0, 0}; !slices.Equal(got, want) {
		t.Errorf("after a signal the checkpoints come after %v s, want %v", got, want)
	}
	if h.handle("terminate", nil, nil); len(h.timers) != 0 {
		t.Errorf("timers of an ended run: %v", h.timers)
	}
}

// patched returns a workflow with a patch. Without the patch, it withdraws 2 in
// its second step, and with the patch 3.
func patched(with bool, answers *[]bool) *hostd.Type[hostd.RunState] {
	return payout(func(f *hostd.Flow) error {
		if err := withdraw(f, "a", 1); err != nil {
			return err
		}
		for range 2 { // the answer is always the same
			amount := int64(2)
			if with {
				has := f.Patched("more")
				if *answers = append(*answers, has); has {
					amount = 3
				}
			}
			if err := withdraw(f, "b", amount); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestPatchesAreRecorded runs a function with a patch from the start, and from
// each place of a run that a function without it has begun. A run that has
// already passed the patch's place keeps the old code until it ends, and any
// other run gets the new code. A function without the patch cannot continue a
// run that has it.
func TestPatchesAreRecorded(t *testing.T) {
	for before := range 8 { // number of events written by the function without the patch
		for seed := range uint64(5) {
			var answers []bool
			h := newRunHost(t, seed, patched(before > 0, &answers))
			if before > 0 {
				h.guest = hostd.NewGuest("test", "", patched(false, nil))
				h.load(h.guest)
			}
			h.handle("start", nil, nil)
			for before > 0 && len(h.events) < before {
				h.step(double)
			}
			old := h.count("asked") >= 2 && before > 0
			ended := h.count("ended") > 0
			h.guest = hostd.NewGuest("test", "", patched(true, &answers))
			h.load(h.guest)
			var amounts []string
			for h.step(func(s abi.Send) ([]byte, string) {
				amounts = append(amounts, string(s.Payload))
				return double(s)
			}) {
			}
			s := h.state()
			patches := 0
			for _, e := range h.events {
				patches += strings.Count(string(e.payload), `"kind":"patch","name":"more"`)
			}
			if s.Status != hostd.RunCompleted && s.Code != "unlucky" || slices.Contains(answers, old) || (patches == 1) == (old || ended) || patches > 1 {
				t.Errorf("after %d events, seed %d: %+v, answers %v, payloads %v, %d patches recorded", before, seed, s, answers, amounts, patches)
			}
			if h.events = slices.DeleteFunc(h.events, func(e runEvent) bool { return e.typ == "ended" }); patches == 1 {
				if got := h.replayed(0, patched(false, nil)); !strings.Contains(got, "run r1, step 2: the code asks for call account/b withdraw, the history has patch more") {
					t.Errorf("without the patch: %q", got)
				}
			}
		}
	}
}

// TestPatchesAtTheEndOfTheHistory loads a run that waits for one of two calls
// with a function that asks about a patch before it waits. The run is
// compatible, and gets the patch with the next command, before the outcome.
func TestPatchesAtTheEndOfTheHistory(t *testing.T) {
	both := func(patch bool) *hostd.Type[hostd.RunState] {
		return payout(func(f *hostd.Flow) error {
			a := hostd.Begin[number](f, "adder", "a", "double", number{1})
			b := hostd.Begin[number](f, "adder", "b", "double", number{2})
			if _, err := a.Result(); err != nil {
				return err
			}
			if patch && f.Patched("note") {
				for range 70 { // more steps than a run makes in one command
					if err := f.Send("log", "l", "note", number{1}); err != nil {
						return err
					}
				}
			}
			_, err := b.Result()
			return err
		})
	}
	for _, command := range []string{"outcome", "signal", "cancel"} {
		h := newRunHost(t, 1, both(false))
		h.handle("start", nil, nil)
		a, b := h.calls[0], h.calls[1]
		h.handle(string(a.OnReply), []byte(`{"n":3}`), a.Token)
		if got := h.replayed(0, both(true)); got != "" {
			t.Errorf("%s: the function with the patch: %s", command, got)
		}
		h.calls = nil
		h.guest = hostd.NewGuest("test", "", both(true))
		h.load(h.guest)
		h.state()
		if n := len(h.events); command == "signal" {
			h.handle("signal", []byte(`{"name":"x"}`), nil)
			if h.events[n].typ != "asked" || h.events[n+1].typ != "signalled" {
				t.Errorf("%s: %+v", command, h.events[n:])
			}
		}
		if command == "cancel" {
			h.handle("cancel", nil, nil)
		} else {
			h.handle(string(b.OnReply), []byte(`{"n":5}`), b.Token)
		}
		for h.step(double) {
		}
		if s := h.state(); len(h.sends) != 70 || (s.Status != hostd.RunCompleted) != (command == "cancel") || s.Status == hostd.RunRunning {
			t.Errorf("%s: %+v, %d sends", command, s, len(h.sends))
		}
		h.passivate()
	}
}

// family is a set of runs of one module that send commands to each other.
// Commands between two runs may be delivered in any order.
type family struct {
	t     testing.TB
	types []hostd.Registration
	names []string
	runs  map[string]*runHost
	sends []familySend
}

type familySend struct {
	from *runHost
	abi.Send
}

func newFamily(t testing.TB, names []string, types ...hostd.Registration) *family {
	return &family{t: t, types: types, names: names, runs: map[string]*runHost{}}
}

// run returns a run, which may not have been started.
func (f *family) run(typ, id string) *runHost {
	key := typ + "/" + id
	if f.runs[key] == nil {
		h := newRunHost(f.t, uint64(len(f.runs)), f.types...)
		h.id, h.typ = id, int32(slices.Index(f.names, typ))
		h.load(h.guest)
		f.runs[key] = h
	}
	return f.runs[key]
}

// handle runs a command of a run, and queues the messages that it sends.
func (f *family) handle(h *runHost, source abi.Source, name string, payload, token []byte) *abi.Output {
	f.t.Helper()
	h.source = source
	out := h.handle(name, payload, token)
	for _, s := range out.Sends {
		if string(s.Command) != "hostd-resume" {
			f.sends = append(f.sends, familySend{h, s})
		}
	}
	h.sends, h.calls = nil, nil
	return out
}

// settle delivers all messages, and resumes runs.
func (f *family) settle() {
	f.t.Helper()
	for n := 0; ; n++ {
		if n > 10_000 {
			f.t.Fatal("the runs do not settle")
		}
		resumed := false
		for _, h := range f.runs {
			if h.resume > 0 {
				h.resume--
				f.handle(h, abi.Source{Kind: abi.SourceEntity, EntityType: []byte(f.names[h.typ]), EntityID: []byte(h.id)}, "hostd-resume", nil, nil)
				resumed = true
			}
		}
		if len(f.sends) == 0 && !resumed {
			return
		}
		if len(f.sends) == 0 {
			continue
		}
		s := f.sends[0]
		f.sends = f.sends[1:]
		to := f.run(string(s.EntityType), string(s.EntityID))
		out := f.handle(to, abi.Source{Kind: abi.SourceEntity, EntityType: []byte(f.names[s.from.typ]), EntityID: []byte(s.from.id)}, string(s.Command), s.Payload, nil)
		to.passivate()
		if !s.WantsAnswer {
			if out.Rejected {
				f.t.Errorf("%s becomes a dead letter: %s", s.Command, out.Reject.Code)
			}
			continue
		}
		back := abi.Source{Kind: abi.SourceEntity, EntityType: s.EntityType, EntityID: s.EntityID}
		if out.Rejected {
			f.handle(s.from, back, string(s.OnReject), fmt.Appendf(nil, `{"code":%q,"message":%q}`, out.Reject.Code, out.Reject.Message), s.Token)
		} else {
			f.handle(s.from, back, string(s.OnReply), out.Reply, s.Token)
		}
		s.from.passivate()
	}
}

// want checks the status, the code and the result of a run.
func (f *family) want(typ, id, status, code, result string) {
	f.t.Helper()
	if s := f.run(typ, id).state(); s.Status != status || s.Code != code || string(s.Result) != result {
		f.t.Errorf("%s %s: %s %s %s %s, want %s %s %s", typ, id, s.Status, s.Code, s.Message, s.Result, status, code, result)
	}
}

func (f *family) client(typ, id, name, payload string) {
	f.t.Helper()
	if out := f.handle(f.run(typ, id), abi.Source{Kind: abi.SourceClient}, name, []byte(payload), nil); out.Rejected {
		f.t.Errorf("%s %s %s: %s", typ, id, name, out.Reject.Code)
	}
	f.settle()
}

// child returns a workflow that waits for a signal and doubles its input.
func child(options ...hostd.Option) *hostd.Type[hostd.RunState] {
	return hostd.Workflow("child", func(f *hostd.Flow, in number) (number, error) {
		got, err := hostd.Wait[number](f, "go")
		switch {
		case err != nil:
			return in, err
		case got.N == 13:
			return in, hostd.Reject("unlucky", "13")
		case got.N == 14:
			return in, hostd.Reject(hostd.CodeDeadlineExceeded, "a step of the child")
		}
		return number{2 * in.N}, nil
	}, options...)
}

// TestChildRuns starts children and waits for their ends. It covers results,
// failures, ids that already exist, time limits, and checkpoints in between.
// All runs are loaded again after each message.
func TestChildRuns(t *testing.T) {
	run := func(body func(f *hostd.Flow, in number) (number, error), options ...hostd.Option) *family {
		f := newFamily(t, []string{"parent", "child"}, hostd.Workflow("parent", body), child(options...))
		f.client("parent", "p", "start", `{"n":5}`)
		return f
	}
	one := func(f *hostd.Flow, in number) (number, error) {
		return hostd.Run[number](f, "child", "c", in)
	}

	f := run(one)
	f.want("parent", "p", hostd.RunRunning, "", "")
	f.client("child", "c", "signal", `{"name":"go"}`)
	f.want("parent", "p", hostd.RunCompleted, "", `{"n":10}`)
	f.want("child", "c", hostd.RunCompleted, "", `{"n":10}`)

	f = run(one)
	f.client("child", "c", "signal", `{"name":"go","value":{"n":13}}`)
	f.want("parent", "p", hostd.RunFailed, "unlucky", "")

	f = run(one)
	f.client("child", "c", "terminate", "")
	f.want("parent", "p", hostd.RunFailed, hostd.CodeTerminated, "")

	f = run(one)
	f.client("parent", "p", "terminate", "")
	f.want("child", "c", hostd.RunFailed, hostd.CodeTerminated, "")

	f = run(one) // the node ends the child
	f.handle(f.run("child", "c"), abi.Source{Kind: abi.SourceClient}, "hostd-end", []byte(`{"code":"too_many_steps","message":"m"}`), nil)
	f.settle()
	f.want("parent", "p", hostd.RunFailed, "too_many_steps", "")

	f = run(one) // the node ends the parent
	f.handle(f.run("parent", "p"), abi.Source{Kind: abi.SourceClient}, "hostd-end", []byte(`{"code":"too_many_steps","message":"m"}`), nil)
	f.settle()
	f.want("parent", "p", hostd.RunFailed, "too_many_steps", "")
	f.want("child", "c", hostd.RunFailed, hostd.CodeTerminated, "")

	f = run(one, hostd.Sends("account"))
	f.want("parent", "p", hostd.RunFailed, "parent_not_declared", "")

	f = run(func(f *hostd.Flow, in number) (number, error) {
		hostd.BeginRun[number](f, "child", "c", in)
		return hostd.Run[number](f, "child", "c", in)
	})
	f.want("parent", "p", hostd.RunFailed, "already_started", "")
	f.want("child", "c", hostd.RunFailed, hostd.CodeTerminated, "")

	f = run(func(f *hostd.Flow, in number) (number, error) {
		for i := range 49 {
			hostd.BeginRun[number](f, "child", fmt.Sprint("c", i), in)
		}
		return hostd.Run[number](f, "child", "last", in)
	})
	f.want("parent", "p", hostd.RunFailed, hostd.CodeTooManyChildren, "")
	f.want("child", "c47", hostd.RunFailed, hostd.CodeTerminated, "")

	f = run(func(f *hostd.Flow, in number) (number, error) { // children that fail with the code of a time limit
		for i := range 60 {
			if _, err := hostd.Run[number](f, "child", fmt.Sprint("c", i), in); err == nil || err.(*hostd.Rejection).Code != hostd.CodeDeadlineExceeded {
				return in, err
			}
		}
		return in, nil
	})
	for i := range 60 {
		f.client("child", fmt.Sprint("c", i), "signal", `{"name":"go","value":{"n":14}}`)
	}
	f.want("parent", "p", hostd.RunCompleted, "", `{"n":5}`)

	f = run(func(f *hostd.Flow, in number) (number, error) {
		if in.N == 5 {
			for _, id := range []string{"c", "d"} {
				if _, err := hostd.Run[number](f, "child", id, in, hostd.Within(hostd.Second)); err == nil {
					return in, hostd.Reject("unexpected", id)
				}
			}
			return in, f.Checkpoint(number{6})
		}
		return hostd.Wait[number](f, "end")
	})
	p := f.run("parent", "p")
	for range 2 {
		for name, timer := range p.timers {
			delete(p.timers, name)
			f.handle(p, abi.Source{Kind: abi.SourceTimer}, string(timer.Command), timer.Payload, nil)
		}
		f.settle()
	}
	if p.count(abi.RunCheckpoint) != 1 {
		t.Fatalf("%+v", p.state())
	}
	f.client("child", "c", "signal", `{"name":"go"}`) // no step waits for its end
	f.want("child", "c", hostd.RunCompleted, "", `{"n":10}`)
	if p.count("left") != 1 {
		t.Errorf("%d children have left", p.count("left"))
	}
	f.client("parent", "p", "signal", `{"name":"end","value":{"n":7}}`)
	f.want("parent", "p", hostd.RunCompleted, "", `{"n":7}`)
	f.want("child", "d", hostd.RunFailed, hostd.CodeTerminated, "")
}

// TestParentsEndBeforeChildren ends a parent whose children are open. Each
// child is terminated, is cancelled or continues, as its step has set. A run of
// the same id that is not the parent's child is unaffected.
func TestParentsEndBeforeChildren(t *testing.T) {
	f := newFamily(t, []string{"parent", "child"}, hostd.Workflow("parent", func(f *hostd.Flow, in number) (number, error) {
		hostd.BeginRun[number](f, "child", "default", in)
		hostd.BeginRun[number](f, "child", "terminated", in, hostd.OnParentEnd(hostd.ChildTerminates))
		hostd.BeginRun[number](f, "child", "cancelled", in, hostd.OnParentEnd(hostd.ChildIsCancelled))
		hostd.BeginRun[number](f, "child", "continues", in, hostd.OnParentEnd(hostd.ChildContinues))
		hostd.BeginRun[number](f, "child", "other", in)
		return hostd.Wait[number](f, "end")
	}), child())
	f.client("child", "other", "start", `{"n":1}`)
	f.client("parent", "p", "start", `{"n":5}`)
	f.client("parent", "p", "signal", `{"name":"end","value":{"n":7}}`)
	f.want("parent", "p", hostd.RunCompleted, "", `{"n":7}`)
	f.want("child", "default", hostd.RunFailed, hostd.CodeTerminated, "")
	f.want("child", "terminated", hostd.RunFailed, hostd.CodeTerminated, "")
	f.want("child", "cancelled", hostd.RunFailed, hostd.CodeCancelled, "")
	f.want("child", "continues", hostd.RunRunning, "", "")
	f.want("child", "other", hostd.RunRunning, "", "")
	f.client("child", "continues", "signal", `{"name":"go"}`)
	f.want("child", "continues", hostd.RunCompleted, "", `{"n":10}`)
	f.want("parent", "p", hostd.RunCompleted, "", `{"n":7}`)
}
