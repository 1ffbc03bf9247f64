package guests

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/guest"
)

const (
	cartCommands = 10_000
	cartEntities = 16
	cartStart    = 1_767_225_600_000_000_000 // 1 January 2026
)

// CartsAreEqual sends the same 10,000 commands to the cart in Go and to a cart
// in another language. Every answer and every state must be the same, also
// after the carts were loaded from snapshots or from events. It also checks
// that the commands cover every case in examples/wasm/cart/README.md.
func CartsAreEqual(t *testing.T, goCart, other *guest.Module) {
	t.Helper()
	const seed = 20
	seen, err := CompareCarts(t, goCart, other, seed, cartCommands)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	for _, what := range []string{
		"event added", "event removed", "event checkedOut", "event expired", "tag checkout", "send orders",
		"timer abandon set", "timer abandon cancelled", "reply", "no reply",
		"rejected checked_out", "rejected invalid_item", "rejected cart_full", "rejected unknown_sku", "rejected empty_cart", "rejected invalid_payload",
		"loaded from a snapshot", "loaded from events",
	} {
		if seen[what] < 5 {
			t.Errorf("%q came up %d times: the comparison shows too little", what, seen[what])
		}
	}
}

// CompareCarts sends random commands, drawn with seed, to two carts. It returns
// how often each case occurred. The error is the first difference or a fault.
func CompareCarts(t *testing.T, a, b *guest.Module, seed uint64, commands int) (seen map[string]int, err error) {
	if one, two := describeCart(a.Manifest()), describeCart(b.Manifest()); one != two {
		return nil, fmt.Errorf("manifests differ:\n%s\n%s", one, two)
	}
	run := &cartRun{random: rand.New(rand.NewPCG(seed, 0)), seen: map[string]int{}}
	for i, m := range []*guest.Module{a, b} {
		if run.guests[i], err = m.Instantiate(t.Context()); err != nil {
			return nil, err
		}
		defer run.guests[i].Close()
	}
	for i := range cartEntities {
		run.carts = append(run.carts, &cart{handle: uint64(i)})
		if err := run.begin(run.carts[i]); err != nil {
			return nil, err
		}
	}
	for i := range commands {
		e := run.carts[run.random.IntN(len(run.carts))]
		if err := run.step(e, i); err != nil {
			return nil, fmt.Errorf("command %d: %w", i, err)
		}
	}
	for _, e := range run.carts {
		if err := run.states(e); err != nil {
			return nil, err
		}
	}
	return run.seen, nil
}

// describeCart returns the part of a cart's manifest that must be the same in
// every language.
func describeCart(m *manifest.Manifest) string {
	var text strings.Builder
	for _, t := range m.EntityTypes {
		fmt.Fprintf(&text, "%s %s %s, state version %d, sends %v\n", t.Name, t.Kind, t.Encoding, t.StateVersion, t.Sends)
		var lines []string
		for _, c := range t.Commands {
			lines = append(lines, fmt.Sprintf("command %s internal=%v", c.Name, c.Internal))
		}
		for _, q := range t.Queries {
			lines = append(lines, "query "+q.Name)
		}
		for _, e := range t.Events {
			lines = append(lines, "event "+e.Type)
		}
		slices.Sort(lines)
		text.WriteString(strings.Join(lines, "\n"))
	}
	return text.String()
}

// cartRun is one comparison of two carts.
type cartRun struct {
	random *rand.Rand
	guests [2]*guest.Instance
	carts  []*cart
	begun  int
	seen   map[string]int
}

// cart is one entity with the data that a node would have stored for it.
type cart struct {
	handle   uint64
	id       string
	history  []byte // input frames of the entity's events
	events   uint64
	snapshot []byte // state after event covered
	covered  uint64
	behind   []byte // input frames of the events after the snapshot
	commands int
}

// begin replaces an entity by a new entity.
func (r *cartRun) begin(e *cart) error {
	r.begun++
	*e = cart{handle: e.handle, id: fmt.Sprintf(`cart "%d\ü😀`, r.begun)}
	return r.load(e)
}

// step sends one command or query to both carts.
func (r *cartRun) step(e *cart, i int) error {
	name, payload := r.command(e)
	env := guest.Env{Now: cartStart + int64(i)*1_000_000_007, Seed: r.random.Uint64()}
	input := abi.AppendName(abi.AppendSequence(nil, e.events), name)
	input = abi.AppendNow(abi.AppendPayload(input, payload), env.Now)
	query := name == "total"
	if !query {
		source := abi.SourceClient
		if name == "expire" {
			source = abi.SourceTimer
		}
		input = abi.AppendCommandID(input, fmt.Sprint("id-", i))
		input = abi.AppendSource(abi.AppendSeed(input, env.Seed), abi.Source{Kind: source})
	}
	var texts [2]string
	var outs [2]abi.Output
	for i, g := range r.guests {
		call, mode := g.Handle, abi.HandleEvents
		if query {
			call, mode = g.Query, abi.QueryOnly
		}
		frames, err := call(e.handle, input, env)
		if err != nil {
			return fmt.Errorf("cart %d: %s %s: %w", i, name, payload, err)
		}
		limits := abi.DefaultLimits()
		if err := abi.ParseOutput(&outs[i], bytes.Clone(frames), mode, &limits); err != nil {
			return fmt.Errorf("cart %d: %s %s: %w", i, name, payload, err)
		}
		texts[i] = describeOutput(&outs[i])
	}
	if texts[0] != texts[1] {
		return fmt.Errorf("%s %q differs:\n%s\n%s", name, payload, texts[0], texts[1])
	}
	r.count(&outs[0])
	if err := r.store(e, &outs[0], env.Now); err != nil {
		return err
	}
	if e.commands++; e.commands%8 == 0 {
		if err := r.states(e); err != nil {
			return fmt.Errorf("%s %s: %w", name, payload, err)
		}
	}
	switch {
	case string(outs[0].Reject.Code) == "checked_out" && r.random.IntN(4) == 0:
		return r.begin(e)
	case r.random.IntN(50) == 0:
		return r.load(e)
	}
	return nil
}

// store appends the events of a command to the history, as a node does.
func (r *cartRun) store(e *cart, out *abi.Output, now int64) error {
	if out.Rejected {
		if len(out.Events) > 0 {
			return errors.New("a rejection comes with events")
		}
		return nil
	}
	for _, event := range out.Events {
		e.events++
		e.history = abi.AppendInputEvent(e.history, e.events, now, string(event.Type), event.Payload)
		e.behind = abi.AppendInputEvent(e.behind, e.events, now, string(event.Type), event.Payload)
	}
	return nil
}

// states compares the states of both carts and sometimes keeps one of them as
// the snapshot.
func (r *cartRun) states(e *cart) error {
	var states [2][]byte
	for i, g := range r.guests {
		state, err := g.Snapshot(e.handle)
		if err != nil {
			return err
		}
		states[i] = bytes.Clone(state)
	}
	if !bytes.Equal(states[0], states[1]) {
		return fmt.Errorf("states of %s differ:\n%s\n%s", e.id, states[0], states[1])
	}
	if r.random.IntN(4) == 0 {
		e.snapshot, e.covered, e.behind = states[0], e.events, nil
	}
	return nil
}

// load drops the entity in both guests and loads it again, either from its
// snapshot and the events after it or from all events.
func (r *cartRun) load(e *cart) error {
	input, events := abi.AppendEntityID(nil, e.id), e.history
	if e.snapshot != nil && r.random.IntN(2) == 0 {
		input = abi.AppendSequence(abi.AppendSnapshot(input, e.snapshot), e.covered)
		events = e.behind
		r.seen["loaded from a snapshot"]++
	} else if e.events > 0 {
		r.seen["loaded from events"]++
	}
	for i, g := range r.guests {
		if err := g.Drop(e.handle); err != nil {
			return err
		}
		if status, err := g.Load(0, e.handle, input); err != nil || status != abi.LoadDone {
			return fmt.Errorf("cart %d: load: %v, %v", i, status, err)
		}
		if len(events) > 0 {
			if err := g.Apply(e.handle, events); err != nil {
				return fmt.Errorf("cart %d: apply: %w", i, err)
			}
		}
	}
	return r.states(e)
}

// describeOutput formats an answer as text. It omits the message about an
// unreadable payload, because its wording differs between SDKs.
func describeOutput(out *abi.Output) string {
	var text strings.Builder
	for _, event := range out.Events {
		fmt.Fprintf(&text, "event %s %s %q\n", event.Type, event.Payload, event.Tags)
	}
	for i := range out.Sends {
		to := &out.Sends[i]
		fmt.Fprintf(&text, "send %s %q %s %s answer=%v\n", to.EntityType, to.EntityID, to.Command, to.Payload, to.WantsAnswer)
	}
	for _, timer := range out.Timers {
		fmt.Fprintf(&text, "timer %s %d %s %q cancel=%v\n", timer.Name, timer.Due, timer.Command, timer.Payload, timer.Cancel)
	}
	if out.Rejected {
		message := out.Reject.Message
		if string(out.Reject.Code) == "invalid_payload" {
			message = nil
		}
		fmt.Fprintf(&text, "rejected %s %s\n", out.Reject.Code, message)
	}
	fmt.Fprintf(&text, "reply %s passivate=%v delete=%v", out.Reply, out.Passivate, out.Delete)
	return text.String()
}

func (r *cartRun) count(out *abi.Output) {
	if out.Rejected {
		r.seen["rejected "+string(out.Reject.Code)]++
		return
	}
	for _, event := range out.Events {
		r.seen["event "+string(event.Type)]++
		for _, tag := range event.Tags {
			r.seen["tag "+string(tag)]++
		}
	}
	for i := range out.Sends {
		r.seen["send "+string(out.Sends[i].EntityType)]++
	}
	for _, timer := range out.Timers {
		what := " set"
		if timer.Cancel {
			what = " cancelled"
		}
		r.seen["timer "+string(timer.Name)+what]++
	}
	if len(out.Reply) > 0 {
		r.seen["reply"]++
	} else {
		r.seen["no reply"]++
	}
}

// command draws a command or a query. Some carts have few SKUs and are checked
// out soon; others reach the maximum number of SKUs.
func (r *cartRun) command(e *cart) (name string, payload []byte) {
	large := e.handle%4 == 0
	skus := 4
	if large {
		skus = 130
	}
	sku := fmt.Sprintf("sku-%d", r.random.IntN(skus))
	switch n := r.random.IntN(1000); {
	case n < 40:
		return []string{"add", "remove"}[n%2], []byte(oddPayloads[r.random.IntN(len(oddPayloads))])
	case n < 160:
		return "total", nil
	case n < 165 && large, n < 180 && !large:
		return "checkout", []byte([]string{"", "{}", "null", "not read", `{"sku":1}`}[r.random.IntN(5)])
	case n < 170 && large, n < 230 && !large:
		return "expire", nil
	case n < 200 && large, n < 550 && !large:
		return "remove", fmt.Appendf(nil, `{"sku":"%s"}`, sku)
	}
	quantity, price := 1+r.random.IntN(20), r.random.IntN(1000)
	switch r.random.IntN(30) {
	case 0:
		quantity = r.random.IntN(1500) - 200
	case 1:
		quantity = 1000
	case 2:
		price = r.random.IntN(2_000_000) - 500_000
	case 3:
		return "add", fmt.Appendf(nil, ` { "sku" : "%s", "price":"%d",`+"\n\t"+`"quantity" :"%d" } `, sku, price, quantity)
	}
	return "add", fmt.Appendf(nil, `{"price":%d,"quantity":%d,"sku":"%s"}`, price, quantity, sku)
}

// oddPayloads are unusual payloads that a client may send by mistake.
var oddPayloads = []string{
	"", "null", "{}", "[]", "1", `"text"`, "true", "{", "}", `{"sku"}`, `{"sku":}`, `{"sku":"a",}`, `{"sku":"a"} x`, "\xff", `{"sku":"a`,
	`{"sku":1}`, `{"sku":["a"]}`, `{"sku":{}}`, `{"sku":true}`, `{"sku":null}`, `{"sku":""}`, `{"sku":"A"}`, `{"sku":"sku-1 "}`, `{"sku":"ü"}`,
	`{"sku":"\u0073ku-1"}`, `{"sku":"\ud83d\ude00"}`, `{"sku":"\n\"\\\/"}`, `{"sku":"\x"}`, `{"sku":"\u12"}`, "{\"sku\":\"a\nb\"}",
	`{"price":1,"quantity":1.5,"sku":"sku-1"}`, `{"price":1,"quantity":"","sku":"sku-1"}`, `{"price":1,"quantity":"x","sku":"sku-1"}`,
	`{"price":1,"quantity":"1 ","sku":"sku-1"}`, `{"price":1,"quantity":true,"sku":"sku-1"}`, `{"price":1,"quantity":[1],"sku":"sku-1"}`,
	`{"price":1,"quantity":null,"sku":"sku-1"}`, `{"price":null,"quantity":1,"sku":"sku-1"}`, `{"quantity":2,"sku":"sku-2"}`,
	`{"price":1,"quantity":01,"sku":"sku-1"}`, `{"price":-,"quantity":1,"sku":"sku-1"}`, `{"price":+1,"quantity":1,"sku":"sku-1"}`,
	`{"price":1,"quantity":"9007199254740993","sku":"sku-1"}`, `{"price":"-1","quantity":1,"sku":"sku-1"}`, `{"price":-0,"quantity":1,"sku":"sku-1"}`,
	`{"price":1,"quantity":1,"sku":"sku-1","gift":{"to":[1,2.5e3,{"a":null}],"wrapped":true,"note":"\u00e9\ud83d\ude00"}}`,
	`{"price":1,"quantity":1,"sku":"sku-1","gift":tru}`, `{"price":1,"quantity":1,"sku":"sku-1","gift":[1,]}`, `{"price":1,"quantity":1,"sku":"sku-1","Sku":"b"}`,
}
