package quickjs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/abitest"
	hostd "github.com/hostd/hostd/guest-sdk/go"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/tests/support/guests"
)

// The workflows of testdata/flows in Go.

type numbered struct {
	N int64 `json:"n"`
}

func double(f *hostd.Flow, n int64, options ...hostd.StepOption) *hostd.Pending[numbered] {
	return hostd.Begin[numbered](f, "adder", "a", "double", numbered{n}, options...)
}

func checked(n int64, call *hostd.Pending[numbered]) (int64, error) {
	got, err := call.Result()
	switch r, rejected := errors.AsType[*hostd.Rejection](err); {
	case rejected && r.Code == hostd.CodeDeadlineExceeded:
		return 0, nil
	case rejected && n%7 == 3 && r.Code == "unlucky":
		return 1, nil
	case err != nil:
		return 0, err
	case n%7 == 3 || got.N != 2*n+1:
		return 0, hostd.Reject("mixed", fmt.Sprintf("the call of %d got %d", n, got.N))
	}
	return got.N, nil
}

// random returns what Flow.random returns in TypeScript.
func random(f *hostd.Flow) float64 { return float64(f.Random()>>11) / (1 << 53) }

func mixedFlow(f *hostd.Flow, in numbered) (numbered, error) {
	sum := int64(0)
	add := func(n int64, call *hostd.Pending[numbered]) error {
		got, err := checked(n, call)
		sum += got
		return err
	}
	for i := range in.N {
		switch int(math.Floor(random(f) * 5)) {
		case 0:
			if err := add(i, double(f, i, hostd.Within(hostd.Second))); err != nil {
				return numbered{}, err
			}
		case 1:
			var all []*hostd.Pending[numbered]
			options := []hostd.StepOption{hostd.Retry(3, hostd.Second, hostd.Minute, "unlucky")}
			if i%2 != 0 {
				options = append(options, hostd.NonCancellable())
			}
			for j := range int64(4) {
				all = append(all, double(f, i+j, options...))
			}
			for j, call := range all {
				if err := add(i+int64(j), call); err != nil {
					return numbered{}, err
				}
			}
		case 2:
			a, b := double(f, i), double(f, i+1)
			if hostd.Race(f, a, b, f.After(hostd.Second)) == 1 {
				if _, err := checked(i+1, b); err != nil {
					return numbered{}, err
				}
			}
		case 3:
			if err := f.Sleep(hostd.Second); err != nil {
				return numbered{}, err
			}
		case 4:
			_, err := hostd.Wait[hostd.RawJSON](f, "go", hostd.Within(hostd.Minute))
			if r, rejected := errors.AsType[*hostd.Rejection](err); rejected && r.Code != hostd.CodeDeadlineExceeded {
				return numbered{}, err
			}
		}
	}
	return numbered{sum}, nil
}

type progressed struct {
	N   int64 `json:"n"`
	At  int64 `json:"at"`
	Sum int64 `json:"sum"`
}

func steadyFlow(f *hostd.Flow, p progressed) (progressed, error) {
	for p.At < p.N {
		f.UUID()
		got, err := double(f, 7*p.At).Result()
		if err != nil {
			return p, err
		}
		p.Sum += got.N
		if p.At++; p.At%3 == 0 && p.At < p.N {
			f.After(hostd.Hour)
			if err := f.Send("log", "l", "note", p); err != nil {
				return p, err
			}
			return p, f.Checkpoint(p)
		}
	}
	for range 3 {
		got, err := hostd.Wait[numbered](f, "last")
		if err != nil {
			return p, err
		}
		p.Sum += 1_000_000 * got.N
	}
	if f.Cancelled() {
		p.Sum = -p.Sum
	}
	return p, nil
}

func bulkFlow(f *hostd.Flow, in numbered) (hostd.None, error) {
	for i := range in.N {
		if err := f.Send("log", "l", "note", numbered{i}); err != nil {
			return hostd.None{}, err
		}
	}
	var all []hostd.Awaitable
	for i, ends := range []hostd.ParentClose{hostd.ChildTerminates, hostd.ChildIsCancelled, hostd.ChildContinues} {
		all = append(all, hostd.BeginRun[hostd.RawJSON](f, "mixed", fmt.Sprint("child-", i+1), numbered{int64(i + 1)}, hostd.OnParentEnd(ends), hostd.Within(2*hostd.Hour)))
	}
	return hostd.None{}, hostd.All(f, all...)
}

func patchedFlow(f *hostd.Flow, _ hostd.RawJSON) (hostd.None, error) {
	var err error
	if f.Patched("first") {
		_, err = double(f, 0).Result()
	} else {
		err = f.Sleep(hostd.Second)
	}
	if err == nil {
		err = f.Sleep(2 * hostd.Second)
	}
	if err == nil && f.Patched("second") {
		err = f.Send("log", "l", "note", nil)
	}
	if err == nil {
		_, err = double(f, 7).Result()
	}
	return hostd.None{}, err
}

func loopFlow(f *hostd.Flow, p progressed) (progressed, error) {
	if p.At++; p.At%10 == 0 {
		if _, err := hostd.Wait[hostd.RawJSON](f, "go"); err != nil {
			return p, err
		}
	}
	if p.At < p.N {
		return p, f.Checkpoint(p)
	}
	return p, nil
}

func familyFlow(f *hostd.Flow, in numbered) (numbered, error) {
	for i := range in.N {
		_, err := hostd.Run[hostd.RawJSON](f, "mixed", fmt.Sprint("child-", i), numbered{i}, hostd.Within(2*hostd.Hour))
		if r, rejected := errors.AsType[*hostd.Rejection](err); err != nil && (!rejected || r.Code != hostd.CodeDeadlineExceeded && r.Code != "unlucky") {
			return in, err
		}
	}
	return in, nil
}

type spelled struct {
	At string `json:"at"`
}

func spelledFlow(_ *hostd.Flow, in spelled) (spelled, error) { return in, nil }

func withdraw(f *hostd.Flow, id string, n int64) *hostd.Pending[hostd.RawJSON] {
	return hostd.Begin[hostd.RawJSON](f, "account", id, "withdraw", numbered{n})
}

// do runs parts of a function until one fails.
func do(parts ...func() error) error {
	for _, part := range parts {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// versionFlows are the versions of one function, each with the error that is
// expected when it loads the history of the first version.
var versionFlows = []struct {
	body func(f *hostd.Flow) error
	want string
}{
	{func(f *hostd.Flow) error { return do(calls(f, "a", 1), sleeps(f, 1), calls(f, "b", 2)) }, ""},
	{func(f *hostd.Flow) error {
		return do(calls(f, "a", 1), sleeps(f, 1), calls(f, "b", 2), calls(f, "c", 3))
	}, ""},
	{func(f *hostd.Flow) error { return do(calls(f, "a", 1), sleeps(f, 1), calls(f, "c", 2)) }, "run r1, step 3: the code asks for call account/c withdraw, the history has call account/b withdraw"},
	{func(f *hostd.Flow) error { return do(calls(f, "a", 1), sleeps(f, 1), calls(f, "b", 3)) }, "run r1, step 3: the code asks for call account/b withdraw with another payload or time than the history has"},
	{func(f *hostd.Flow) error { return do(calls(f, "a", 5), sleeps(f, 1), calls(f, "b", 2)) }, "run r1, step 1: the code asks for call account/a withdraw with another payload or time than the history has"},
	{func(f *hostd.Flow) error { return do(calls(f, "a", 1), calls(f, "b", 2)) }, "run r1, step 2: the code asks for call account/b withdraw, the history has sleep"},
	{func(f *hostd.Flow) error {
		return do(calls(f, "a", 1), func() error { return f.Send("log", "l", "note", numbered{1}) }, sleeps(f, 1), calls(f, "b", 2))
	}, "run r1, step 2: the code asks for send log/l note, the history has sleep"},
	{func(f *hostd.Flow) error { return do(calls(f, "a", 1), sleeps(f, 60), calls(f, "b", 2)) }, "run r1, step 2: the code asks for sleep with another payload or time than the history has"},
	{func(f *hostd.Flow) error { return do(calls(f, "a", 1), sleeps(f, 1)) }, "run r1, step 3: the code returns, the history has call account/b withdraw"},
	{func(f *hostd.Flow) error {
		return do(calls(f, "a", 1), sleeps(f, 1), func() error { return hostd.All(f, withdraw(f, "b", 2), withdraw(f, "b", 3)) })
	}, "run r1, step 4: the code asks for call account/b withdraw, the history ends there"},
	{func(f *hostd.Flow) error {
		return do(calls(f, "a", 1), sleeps(f, 1), func() error { return f.Checkpoint(hostd.RawJSON(nil)) })
	}, "run r1, step 3: the code makes a checkpoint, the history has call account/b withdraw"},
	{func(f *hostd.Flow) error { return do(calls(f, "a", 1), func() error { panic("broken") }) }, "run r1, step 2: "},
}

func calls(f *hostd.Flow, id string, n int64) func() error {
	return func() error {
		_, err := withdraw(f, id, n).Result()
		return err
	}
}

func sleeps(f *hostd.Flow, seconds hostd.Duration) func() error {
	return func() error { return f.Sleep(seconds * hostd.Second) }
}

// Types of the module flows, by their number.
const (
	flowMixed = iota
	flowSteady
	flowBulk
	flowPatched
	flowLoop
	flowFamily
	flowSpelled
	flowVersions
)

var mistakes = []string{"foreign", "spin", "thrown", "open", "dates", "finally", "acted"}

// mistake returns the number of a type that exists only in TypeScript.
func mistake(name string) int32 {
	return int32(flowVersions + len(versionFlows) + slices.Index(mistakes, name))
}

func goFlows() *hostd.Guest {
	types := []hostd.Registration{
		hostd.Workflow("mixed", mixedFlow), hostd.Workflow("steady", steadyFlow), hostd.Workflow("bulk", bulkFlow), hostd.Workflow("patched", patchedFlow),
		hostd.Workflow("loop", loopFlow), hostd.Workflow("family", familyFlow), hostd.Workflow("spelled", spelledFlow),
	}
	for i, v := range versionFlows {
		types = append(types, hostd.Workflow(fmt.Sprint("version-", i), func(f *hostd.Flow, _ hostd.RawJSON) (hostd.RawJSON, error) { return nil, v.body(f) }))
	}
	return hostd.NewGuest("flows", "1.0.0", types...)
}

// flowHost is the host of one run, in a module in Go, in one in TypeScript, or
// in both, which must then answer each call with the same bytes.
type flowHost struct {
	t      *testing.T
	rng    *rand.Rand
	native *hostd.Guest    // module in Go; nil if there is none
	script *guest.Instance // module in TypeScript; nil if there is none
	typ    int32
	events []flowEvent
	now    int64
	calls  []abi.Send
	late   []abi.Send // calls whose outcome was delivered
	resume int
	timers map[string]abi.Timer
	counts map[string]int
}

type flowEvent struct {
	typ     string
	payload []byte
	at      int64
}

func newFlowHost(t *testing.T, m *guest.Module, seed uint64, typ int32, native bool) *flowHost {
	h := &flowHost{t: t, rng: rand.New(rand.NewPCG(seed, 3)), typ: typ, now: 1_767_225_600_000_000_000 + int64(seed), timers: map[string]abi.Timer{}, counts: map[string]int{}}
	if native {
		h.native = goFlows()
	}
	h.script = instance(t, m)
	if err := h.load(0); err != nil {
		t.Fatal(err)
	}
	return h
}

func instance(t *testing.T, m *guest.Module) *guest.Instance {
	t.Helper()
	g, err := m.Instantiate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() }) // it may have ended with a fault
	return g
}

// both calls both modules, and compares the results and the texts of faults.
func (h *flowHost) both(what string, native func(g *hostd.Guest) []byte, script func(g *guest.Instance) ([]byte, error)) (out []byte, err error) {
	h.t.Helper()
	var fault string
	if h.native != nil {
		func() {
			defer func() {
				if p := recover(); p != nil {
					fault = fmt.Sprint(p)
				}
			}()
			out = bytes.Clone(native(h.native))
		}()
	}
	if h.script == nil {
		if fault != "" {
			err = errors.New(fault)
		}
		return out, err
	}
	got, err := script(h.script)
	if err != nil {
		err = errors.New(strings.TrimSpace(cmp.Or(words(err), err.Error())))
	}
	if h.native != nil && (fault == "") != (err == nil) {
		h.t.Fatalf("%s: in Go %q, in TypeScript %v", what, fault, err)
	}
	if h.native != nil && err == nil && !bytes.Equal(got, out) {
		at := 0
		for at < min(len(got), len(out)) && got[at] == out[at] {
			at++
		}
		h.t.Fatalf("%s after %d events differs at byte %d:\nGo         %.300q\nTypeScript %.300q", what, len(h.events), at, out[max(0, at-100):], got[max(0, at-100):])
	}
	if fault != "" && !strings.Contains(fault, "panic: ") && unexplained(fault) != unexplained(err.Error()) {
		h.t.Fatalf("%s: in Go %q, in TypeScript %q", what, fault, err)
	}
	return bytes.Clone(got), err
}

// cannotRead begins the description of a difference that ends with the error of a
// decoder. Decoders in Go and in TypeScript have different errors.
const cannotRead = "the code cannot read the input of the checkpoint: "

// unexplained removes the error of a decoder from the text of a fault.
func unexplained(fault string) string {
	before, _, found := strings.Cut(fault, cannotRead)
	if found {
		before += cannotRead
	}
	return before
}

// load replays the run from its first event, or from a checkpoint, in batches of
// random sizes.
func (h *flowHost) load(at int) error {
	input := abi.AppendSequence(abi.AppendEntityID(nil, "r1"), uint64(at))
	if at > 0 {
		input = abi.AppendSnapshot(input, h.events[at-1].payload)
	}
	_, err := h.both("load", func(g *hostd.Guest) []byte {
		return []byte{byte(g.Load(h.typ, 0, input))}
	}, func(g *guest.Instance) ([]byte, error) {
		status, err := g.Load(uint32(h.typ), 0, input)
		return []byte{byte(status)}, err
	})
	for err == nil && at < len(h.events) {
		var batch []byte
		for n := 1 + h.rng.IntN(5); n > 0 && at < len(h.events); n-- {
			e := h.events[at]
			at++
			batch = abi.AppendInputEvent(batch, uint64(at), e.at, e.typ, e.payload)
		}
		_, err = h.both("apply", func(g *hostd.Guest) []byte {
			return []byte{byte(g.Apply(0, batch))}
		}, func(g *guest.Instance) ([]byte, error) { return []byte{byte(abi.ApplyDone)}, g.Apply(0, batch) })
	}
	return err
}

func (h *flowHost) snapshot() ([]byte, error) {
	return h.both("snapshot", func(g *hostd.Guest) []byte { return g.Snapshot(0) }, func(g *guest.Instance) ([]byte, error) { return g.Snapshot(0) })
}

// passivate drops the run and loads it again. The state must be the same.
func (h *flowHost) passivate() {
	h.t.Helper()
	was, err := h.snapshot()
	if err != nil {
		h.t.Fatal(err)
	}
	_, err = h.both("drop", func(g *hostd.Guest) []byte { g.Drop(0); return nil }, func(g *guest.Instance) ([]byte, error) { return nil, g.Drop(0) })
	from := []int{0}
	for i, e := range h.events {
		if e.typ == abi.RunCheckpoint {
			from = append(from, i+1)
		}
	}
	if err := errors.Join(err, h.load(from[h.rng.IntN(len(from))])); err != nil {
		h.t.Fatal(err)
	}
	if is, err := h.snapshot(); err != nil || !bytes.Equal(was, is) {
		h.t.Fatalf("the replayed state differs: %v\nlive   %s\nreplay %s", err, was, is)
	}
	h.counts["passivated"]++
}

// handle runs a command and stores its output.
func (h *flowHost) handle(name string, payload, token []byte) (*abi.Output, error) {
	h.t.Helper()
	return h.handleFrom(abi.Source{Kind: abi.SourceClient}, name, payload, token)
}

func (h *flowHost) handleFrom(from abi.Source, name string, payload, token []byte) (*abi.Output, error) {
	h.t.Helper()
	h.now += 1 + h.rng.Int64N(1_000_000)
	seed := h.rng.Uint64()
	in := abi.AppendName(abi.AppendSequence(nil, uint64(len(h.events))), name)
	in = abi.AppendSeed(abi.AppendNow(abi.AppendPayload(in, payload), h.now), seed)
	in = abi.AppendSource(in, from)
	if token != nil {
		in = abi.AppendToken(in, token)
	}
	frames, err := h.both(name, func(g *hostd.Guest) []byte { return g.Handle(0, in) }, func(g *guest.Instance) ([]byte, error) {
		return g.Handle(0, in, guest.Env{Now: h.now, Seed: seed})
	})
	if err != nil {
		return nil, err
	}
	limits := abi.DefaultLimits()
	out := new(abi.Output)
	if err := abi.ParseOutput(out, frames, abi.HandleEvents, &limits); err != nil {
		h.t.Fatalf("%s: %v", name, err)
	}
	if out.Rejected {
		return out, nil
	}
	for _, e := range out.Events {
		h.events = append(h.events, flowEvent{string(e.Type), e.Payload, h.now})
		h.counts[string(e.Type)]++
	}
	for _, s := range out.Sends {
		switch {
		case s.WantsAnswer:
			h.calls = append(h.calls, s)
		case string(s.Command) == "hostd-resume":
			h.resume++
		default:
			h.counts["send "+string(s.Command)]++
		}
	}
	for _, timer := range out.Timers {
		name, _, _ := strings.Cut(string(timer.Name), "-")
		if delete(h.timers, string(timer.Name)); timer.Cancel {
			h.counts["cancelled timer "+name]++
		} else {
			h.counts["timer "+name]++
			h.timers[string(timer.Name)] = timer
		}
	}
	return out, nil
}

func (h *flowHost) must(name, payload string) *abi.Output {
	h.t.Helper()
	out, err := h.handle(name, []byte(payload), nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

func (h *flowHost) ended() bool {
	return len(h.events) > 0 && h.events[len(h.events)-1].typ == abi.RunEnded
}

// endChild delivers the report of the child run that s starts: it has failed with
// the code, or, if the code is empty, it has a result.
func (h *flowHost) endChild(s abi.Send, code string) error {
	h.t.Helper()
	var start struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal(s.Payload, &start); err != nil {
		h.t.Fatal(err)
	}
	end := fmt.Sprintf(`{"token":%q,"result":{"n":1}}`, start.Token)
	if code != "" {
		end = fmt.Sprintf(`{"token":%q,"code":%q,"message":"of the child"}`, start.Token, code)
	}
	_, err := h.handleFrom(abi.Source{Kind: abi.SourceEntity, EntityType: s.EntityType, EntityID: s.EntityID}, "hostd-child", []byte(end), nil)
	return err
}

// answer answers a call: a function of its payload.
func answer(s abi.Send) (reply string, code string) {
	var n int64
	if _, err := fmt.Sscanf(string(s.Payload), `{"n":%d}`, &n); err != nil {
		return `{}`, ""
	}
	switch {
	case string(s.Command) == "withdraw":
		return `{"balance":1}`, ""
	case n%7 == 3:
		return "", "unlucky"
	}
	return fmt.Sprintf(`{"n":%d}`, 2*n+1), ""
}

// step delivers a random outcome, timer or resumption. It returns false if
// nothing is left to deliver.
func (h *flowHost) step() bool {
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
	var err error
	switch n := h.rng.IntN(left); {
	case n < len(h.calls):
		s := h.calls[n]
		h.calls = slices.Delete(h.calls, n, n+1)
		h.late = append(h.late, s)
		if reply, code := answer(s); string(s.Command) == "hostd-run" && h.rng.IntN(3) > 0 {
			err = h.endChild(s, []string{"", "unlucky", "deadline_exceeded"}[h.rng.IntN(3)])
		} else if code != "" {
			_, err = h.handle(string(s.OnReject), fmt.Appendf(nil, `{"code":%q,"message":"no \u2028 <"}`, code), s.Token)
		} else {
			_, err = h.handle(string(s.OnReply), []byte(reply), s.Token)
		}
	case n < len(h.calls)+len(names):
		timer := h.timers[names[n-len(h.calls)]]
		delete(h.timers, string(timer.Name))
		h.now = max(h.now, timer.Due)
		_, err = h.handle(string(timer.Command), timer.Payload, nil)
	default:
		h.resume--
		_, err = h.handle("hostd-resume", nil, nil)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return true
}

// TestFlowsMatchGo runs the same workflows in Go and in TypeScript, with timers,
// signals, cancellations, retries, checkpoints, patches, children and ends by
// the node. Outcomes arrive in any order, late and twice. Meanwhile the runs are
// passivated, and loaded from their first event and from checkpoints. Every
// output and every state has the same bytes in both.
func TestFlowsMatchGo(t *testing.T) {
	m := flows(t)
	total := map[string]int{}
	seeds := uint64(72)
	if testing.Short() {
		seeds = 18
	}
	for seed := range seeds {
		typ := int32(seed % 6)
		h := newFlowHost(t, m, seed, typ, true)
		h.must("signal", `{"name":"early"}`)
		h.must("start", []string{`{"n":12}`, `{"n":20}`, `{"n":150}`, "", `{"n":25}`, `{"n":25}`}[typ])
		for rounds := 0; !h.ended(); rounds++ {
			switch n := h.rng.IntN(12); {
			case n < 2:
				h.must("signal", fmt.Sprintf(`{"name":%q,"value":{"n":%d,"text":"aé\n\"}"}}`, []string{"go", "last", "other"}[h.rng.IntN(3)], n))
			case n == 2 && len(h.late) > 0:
				s := h.late[h.rng.IntN(len(h.late))]
				if _, err := h.handle(string(s.OnReply), []byte(`{"n":-1}`), s.Token); err != nil {
					t.Fatal(err)
				}
			case n == 3 && rounds > 30 && seed/6%3 == 0:
				h.must("cancel", "")
			case n == 4 && rounds > 400:
				h.must("terminate", "")
			case n == 5 && rounds > 30 && seed/6%3 == 1:
				h.must("hostd-end", `{"code":"too_many_steps","message":"by the node"}`)
				h.counts["ended by the node"]++
			default:
				h.step()
			}
		}
		h.passivate()
		for name, payload := range map[string]string{"start": `{"n":12}`, "signal": `{"name":"go"}`, "cancel": "", "hostd-resume": "", "hostd-came": "1", "hostd-end": `{"code":"late"}`} {
			h.must(name, payload)
		}
		for name, n := range h.counts {
			total[name] += n
		}
	}
	for _, name := range []string{"asked", "came", "retried", "signalled", "cancelled", "resumed", "left", abi.RunCheckpoint, "send note", "send hostd-parent", "passivated", "timer resume", "ended by the node"} {
		if total[name] == 0 {
			t.Errorf("no run has %q: %v", name, total)
		}
	}
	t.Log(total)
}

func flows(t *testing.T) *guest.Module {
	t.Helper()
	m, err := compile(t, build(t, project(t, "flows")), guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestFailedChildrenOfFlowsAreForgotten starts more children, one after another,
// than may be open at a time. Each fails with the code that the time limit of its
// step also has, or its start is rejected with that code. Then it is not open.
func TestFailedChildrenOfFlowsAreForgotten(t *testing.T) {
	h := newFlowHost(t, flows(t), 1, flowFamily, true)
	h.must("start", `{"n":60}`)
	for i := range 60 {
		if len(h.calls) != 1 {
			t.Fatalf("%d children have been started, and %d are open: %s", i, len(h.calls), h.events[len(h.events)-1].payload)
		}
		s := h.calls[0]
		h.calls = nil
		var err error
		if i%2 == 0 {
			err = h.endChild(s, "deadline_exceeded")
		} else {
			_, err = h.handle(string(s.OnReject), []byte(`{"code":"deadline_exceeded"}`), s.Token)
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			h.passivate()
		}
	}
	if got := string(h.events[len(h.events)-1].payload); got != `{"result":{"n":60}}` || h.counts["left"] != 60 {
		t.Errorf("the run ended with %s after %d children", got, h.counts["left"])
	}
}

// TestNodeEndsFlows lets the node end a run that has a parent and a child. The run
// reports its end to both, as a run in Go does.
func TestNodeEndsFlows(t *testing.T) {
	h := newFlowHost(t, flows(t), 1, flowFamily, true)
	parent := abi.Source{Kind: abi.SourceEntity, EntityType: []byte("steady"), EntityID: []byte("p")}
	if _, err := h.handleFrom(parent, "hostd-run", []byte(`{"input":{"n":2},"token":"t1"}`), nil); err != nil {
		t.Fatal(err)
	}
	if h.must("hostd-end", `[]`); h.ended() {
		t.Error("a payload that is not an object has ended the run")
	}
	h.passivate()
	h.must("hostd-end", `{"code":"run_time_limit","message":"m"}`)
	if got := string(h.events[len(h.events)-1].payload); !h.ended() || got != `{"code":"run_time_limit","message":"m"}` {
		t.Errorf("the run ended with %s", got)
	}
	if h.counts["send hostd-child"] != 1 || h.counts["send hostd-parent"] != 1 {
		t.Errorf("the run reported its end to %d parents and %d children, want 1 of each", h.counts["send hostd-child"], h.counts["send hostd-parent"])
	}
}

// TestFlowsEndOnlyWithACode sends a run the command by which the node ends it, but
// without a code. The run rejects it and stays open, because a run that ends
// without a code is completed.
func TestFlowsEndOnlyWithACode(t *testing.T) {
	h := newFlowHost(t, flows(t), 1, flowFamily, true)
	h.must("start", `{"n":2}`)
	for _, payload := range []string{"", `{}`, `{"code":"","message":"m"}`} {
		if out := h.must("hostd-end", payload); !out.Rejected || string(out.Reject.Code) != hostd.CodeInvalidPayload || h.ended() {
			t.Errorf("%q: rejected %v, %+v", payload, out.Rejected, out.Reject)
		}
	}
}

// TestFlowCheckpointLoopsArePaced runs a loop that makes checkpoints without an
// outcome between them, and passivates it after each. From the second checkpoint
// on, timers with longer and longer times resume it, in Go and in TypeScript.
// An outcome resets the times.
func TestFlowCheckpointLoopsArePaced(t *testing.T) {
	h := newFlowHost(t, flows(t), 1, flowLoop, true)
	h.must("start", `{"n":50}`)
	// waits returns how many seconds pass before the run continues each time,
	// until it waits for a signal.
	waits := func() (all []int64) {
		for h.resume+len(h.timers) > 0 {
			h.passivate()
			if h.resume > 0 {
				h.resume--
				all = append(all, 0)
				h.must("hostd-resume", "")
				continue
			}
			timer := h.timers["resume"]
			delete(h.timers, "resume")
			all = append(all, (timer.Due-h.now)/int64(hostd.Second))
			h.now = timer.Due
			h.must(string(timer.Command), string(timer.Payload))
		}
		return all
	}
	if got, want := waits(), []int64{0, 1, 2, 4, 8, 16, 32, 60, 60}; !slices.Equal(got, want) {
		t.Errorf("the run continues after %v s, want %v", got, want)
	}
	for range 2 {
		h.must("signal", `{"name":"go"}`)
		if got, want := waits(), []int64{0, 0, 1, 2, 4, 8, 16, 32, 60, 60}; !slices.Equal(got, want) {
			t.Errorf("after a signal the run continues after %v s, want %v", got, want)
		}
	}
	h.must("signal", `{"name":"go"}`)
	for len(h.timers) == 0 {
		h.must("hostd-resume", "")
	}
	if h.must("terminate", ""); len(h.timers) != 0 {
		t.Errorf("timers of an ended run: %v", h.timers)
	}
}

// TestFlowCheckpointsCompareTheInput replays a run that has made a checkpoint and
// was not resumed, with a function that cannot read the stored input. That is a
// difference, and the node can still end the run.
func TestFlowCheckpointsCompareTheInput(t *testing.T) {
	m := flows(t)
	h := newFlowHost(t, m, 1, flowSteady, true)
	h.must("start", `{"n":20}`)
	for h.counts[abi.RunCheckpoint] == 0 {
		h.step()
	}
	for _, from := range []int{0, len(h.events)} {
		load := func(typ int32) *flowHost {
			other := newFlowHost(t, m, 1, typ, true)
			other.events = slices.Clone(h.events)
			if err := other.load(from); err != nil {
				t.Fatal(err)
			}
			return other
		}
		if _, err := load(flowSteady).snapshot(); err != nil {
			t.Errorf("from event %d, the same function: %v", from, err)
		}
		if _, err := load(flowSpelled).snapshot(); err == nil || !strings.Contains(err.Error(), "run r1, step 6: "+cannotRead) {
			t.Errorf("from event %d, a function that cannot read the input: %v", from, err)
		}
		other := load(flowSpelled)
		if other.must("hostd-end", `{"code":"run_time_limit","message":"m"}`); !other.ended() {
			t.Errorf("from event %d, the node has not ended the run", from)
		}
	}
}

// TestFlowDifferencesMatchGo loads a run that waits for its third step with
// changed functions. Functions in Go and in TypeScript accept and refuse the
// same histories, whichever of them made it, and name the same run, step and
// difference.
func TestFlowDifferencesMatchGo(t *testing.T) {
	m := flows(t)
	h := newFlowHost(t, m, 1, flowVersions, true)
	h.must("start", "")
	for h.counts["asked"] < 3 {
		h.step()
	}
	for i, v := range versionFlows {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			other := newFlowHost(t, m, uint64(i), flowVersions+int32(i), true)
			other.events = h.events
			err := other.load(0)
			var state []byte
			if err == nil {
				state, err = other.snapshot()
			}
			got := ""
			if err != nil {
				got = strings.TrimPrefix(err.Error(), "hostd: ")
			} else if _, more, ok := strings.Cut(string(state), `"ahead":"`); ok {
				got, _, _ = strings.Cut(more, `"`)
			}
			if v.want == "" && got != "" || !strings.HasPrefix(got, v.want) {
				t.Errorf("got %q, want %q", got, v.want)
			}
		})
	}
}

// TestFlowMistakes runs functions that await something that is not a step, throw, loop in
// microtasks, or undo their work when they are unloaded. A mistake ends the
// command with the run, the step and the source line, and has no effect.
func TestFlowMistakes(t *testing.T) {
	m := flows(t)
	for _, tt := range []struct {
		name, want string
		calls      int // number of calls that are answered before the mistake
	}{
		{"foreign", "hostd: run r1, step 1: the workflow awaits something that is not a step", 1},
		{"thrown", "hostd: run r1, step 1: TypeError: cannot read property 'of' of undefined [flows.ts:140]", 1},
		{"open", "hostd: run r1, step 1: Error: a checkpoint of open while step 1, call account/a withdraw, has no outcome: await it", 0},
		{"spin", "fuel", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newFlowHost(t, m, 1, mistake(tt.name), false)
			_, err := h.handle("start", nil, nil)
			for range tt.calls {
				if err != nil || len(h.calls) != 1 {
					t.Fatal(err, len(h.calls))
				}
				_, err = h.handle("hostd-came", []byte(`{}`), h.calls[0].Token)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestFlowClocks checks that Date and Math.random in a flow use the values of its run,
// which a replay repeats.
func TestFlowClocks(t *testing.T) {
	h := newFlowHost(t, flows(t), 1, mistake("dates"), false)
	h.must("start", "")
	at := h.now / 1_000_000
	for h.step() {
	}
	h.passivate()
	want := fmt.Sprintf(`{"result":[%d,%d,true,false]}`, at, h.now/1_000_000-at)
	if got := string(h.events[len(h.events)-1].payload); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestUnloadedFlowsMakeNoSteps passivates a run in a try statement. Its finally
// block does not run.
func TestUnloadedFlowsMakeNoSteps(t *testing.T) {
	h := newFlowHost(t, flows(t), 1, mistake("finally"), false)
	h.must("start", "")
	for range 50 {
		h.passivate()
	}
	h.events, h.typ = nil, mistake("acted")
	if err := h.load(0); err != nil {
		t.Fatal(err)
	}
	h.must("start", "")
	if got := string(h.events[len(h.events)-1].payload); got != `{"result":0}` {
		t.Errorf("after 50 passivations: %s", got)
	}
}

// TestBookingExample builds the example, runs the conformance suite on it, and
// books a trip: the guide shows its states.
func TestBookingExample(t *testing.T) {
	const source = "../../../../../examples/wasm/booking"
	dir := project(t, "")
	script, err := os.ReadFile(source + "/booking.ts")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "package.json", `{"main":"booking.ts"}`)
	write(t, dir, "booking.ts", string(script))
	m, err := compile(t, build(t, dir), guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../../../docs/guide/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	const booking = 1 // its number among the module's types
	for _, rejected := range []string{"", "ritz"} {
		h := newFlowHost(t, m, 1, booking, false)
		states := []string{string(h.must("start", `{"flight":"ba1","hotel":"ritz","seats":1}`).Reply)}
		for len(h.calls) > 0 {
			s := h.calls[0]
			h.calls = h.calls[1:]
			name, payload := string(s.OnReply), `{"left":0}`
			if string(s.EntityID) == rejected {
				name, payload = string(s.OnReject), `{"code":"sold_out","message":"ritz has 0 seats left"}`
			}
			if _, err := h.handle(name, []byte(payload), s.Token); err != nil {
				t.Fatal(err)
			}
			h.passivate()
		}
		state, err := h.snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if states = append(states, string(state)); rejected == "" {
			states = append(states, string(h.must("signal", `{"name":"payment","value":{"by":"eve"}}`).Reply))
		}
		for _, s := range states {
			if !strings.Contains(string(page), "\n    "+s+"\n") {
				t.Errorf("the guide does not show the state %s", s)
			}
		}
	}
	report, err := abitest.Run(t.Context(), guests.Opener{Module: m}, abitest.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range report.Checks {
		if check.Status == abitest.Failed {
			t.Errorf("%+v", check)
		}
	}
}
