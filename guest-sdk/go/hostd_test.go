package hostd_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	hostd "github.com/hostd/hostd/guest-sdk/go"
	"github.com/hostd/hostd/guest-sdk/go/hostdtest"
)

type (
	order struct {
		Lines  []string         `json:"lines"`
		Counts map[string]int64 `json:"counts"`
		Paid   bool             `json:"paid"`
	}
	addLine  struct{ Line string }
	lineWas  struct{ Line string }
	paid     struct{ At int64 }
	orderLen struct {
		Lines int `json:"lines"`
	}
)

func orders() *hostd.Type[order] {
	o := hostd.Entity[order]("order", hostd.JSON,
		hostd.SnapshotEvery(50), hostd.PassivateAfter(90*hostd.Second), hostd.AlwaysOn(), hostd.ShardKey("customer", "-"), hostd.AcceptsFrom("account", "audit-*"))
	o.Initial(func() order { return order{Counts: map[string]int64{}} })
	hostd.Event(o, "line-added", func(s *order, e lineWas) {
		s.Lines = append(s.Lines, e.Line)
		s.Counts[e.Line]++
	})
	hostd.Event(o, "paid", func(s *order, _ paid) { s.Paid = true })
	hostd.Command(o, "add", func(c *hostd.Context, s *order, cmd addLine) (orderLen, error) {
		switch cmd.Line {
		case "":
			return orderLen{}, hostd.Reject("empty_line", "a line needs text")
		case "fail":
			return orderLen{}, errors.New("out of luck")
		case "late":
			c.Emit(lineWas{"late"})
			return orderLen{}, hostd.Reject("late", "rejected after emitting")
		}
		c.Emit(&lineWas{cmd.Line}, "lines", "line:"+cmd.Line)
		if len(s.Lines) == 0 || s.Lines[len(s.Lines)-1] != cmd.Line {
			panic("Emit has not evolved the state")
		}
		return orderLen{len(s.Lines)}, nil
	})
	hostd.Command(o, "pay", func(c *hostd.Context, s *order, _ hostd.None) (hostd.None, error) {
		c.Emit(paid{int64(c.Now())})
		c.Send("ledger", "main", "book", addLine{c.EntityID()})
		c.SendWithAnswer("ledger", "main", "check", nil, hostd.Answer{OnReply: "ok", OnReject: "no"})
		c.SetTimer("ship", c.Now().Add(hostd.Hour), "ship", orderLen{len(s.Lines)})
		c.CancelTimer("remind")
		c.Passivate()
		c.Log(abi.LogWarn, "paid "+c.EntityType())
		return hostd.None{}, nil
	})
	hostd.Command(o, "cancel", func(c *hostd.Context, _ *order, _ hostd.None) (hostd.None, error) {
		c.Delete()
		return hostd.None{}, nil
	})
	hostd.Command(o, "who", func(c *hostd.Context, _ *order, _ hostd.None) (hostd.RawJSON, error) {
		text, err := json.Marshal(map[string]any{
			"id": c.EntityID(), "command": c.CommandID(), "sequence": c.Sequence(), "now": c.Now(),
			"source": c.Source(), "random": []uint64{c.Random(), c.Random()},
		})
		return text, err
	})
	caller := func(p hostd.Principal, known bool) (hostd.RawJSON, error) {
		text, err := json.Marshal(map[string]any{"kind": p.Kind, "name": p.Name, "groups": p.Groups, "known": known})
		return text, err
	}
	setting := func(v *hostd.View) (hostd.RawJSON, error) {
		value, ok := v.Setting("currency")
		text, err := json.Marshal(map[string]any{"value": value, "ok": ok})
		return text, err
	}
	hostd.Command(o, "setting", func(c *hostd.Context, _ *order, _ hostd.None) (hostd.RawJSON, error) { return setting(&c.View) })
	hostd.Command(o, "caller", func(c *hostd.Context, _ *order, _ hostd.None) (hostd.RawJSON, error) { return caller(c.Principal()) })
	hostd.Query(o, "length", func(v *hostd.View, s *order, _ hostd.None) (orderLen, error) {
		return orderLen{len(s.Lines)}, nil
	})
	hostd.Query(o, "caller", func(v *hostd.View, _ *order, _ hostd.None) (hostd.RawJSON, error) { return caller(v.Principal()) })
	hostd.Query(o, "setting", func(v *hostd.View, _ *order, _ hostd.None) (hostd.RawJSON, error) { return setting(v) })
	return o
}

// TestPrincipal checks that commands and queries can read their caller, and
// that messages of entities and timers have none.
func TestPrincipal(t *testing.T) {
	d := hostdtest.New(t, orders())
	of := func(kind, name string, known bool, groups ...string) hostd.RawJSON {
		text, err := json.Marshal(map[string]any{"kind": kind, "name": name, "groups": groups, "known": known})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	d.When("caller", nil).Reply(of("", "", false))
	d.Query("caller", nil).Reply(of("", "", false))
	d.As("jwt", "bo", "staff", "auditors")
	d.When("caller", nil).Reply(of("jwt", "bo", true, "staff", "auditors"))
	d.Query("caller", nil).Reply(of("jwt", "bo", true, "staff", "auditors"))
	d.From("account", "a").When("caller", nil).Reply(of("", "", false))
	d.FromTimer().When("caller", nil).Reply(of("", "", false))
}

func TestSettings(t *testing.T) {
	d := hostdtest.New(t, orders())
	none := hostd.RawJSON(`{"ok":false,"value":""}`)
	d.When("setting", nil).Reply(none)
	d.Setting("limit", "3").Query("setting", nil).Reply(none)
	d.Setting("currency", "SEK").Setting("currency", "EUR")
	d.When("setting", nil).Reply(hostd.RawJSON(`{"ok":true,"value":"EUR"}`))
	d.Query("setting", nil).Reply(hostd.RawJSON(`{"ok":true,"value":"EUR"}`))
	d.From("account", "a").When("setting", nil).Reply(hostd.RawJSON(`{"ok":true,"value":"EUR"}`))
}

func TestCommandsEventsAndReplies(t *testing.T) {
	d := hostdtest.New(t, orders()).Given(lineWas{"a"})
	d.When("add", addLine{"b"}).Events(lineWas{"b"}).Reply(orderLen{2}).Tags(1, "lines", "line:b")
	d.When("add", addLine{""}).Rejected("empty_line")
	d.When("add", addLine{"fail"}).Rejected(hostd.CodeError)
	d.When("add", addLine{"late"}).Rejected("late")
	d.When("add", hostd.RawJSON(`{"Line":7}`)).Rejected(hostd.CodeInvalidPayload)
	d.When("none", nil).Rejected(hostd.CodeUnknownName)
	d.Query("none", nil).Rejected(hostd.CodeUnknownName)
	d.Query("length", nil).Reply(orderLen{2})
	d.Then(order{Lines: []string{"a", "b"}, Counts: map[string]int64{"a": 1, "b": 1}})
}

// TestTransientTypes checks that the state is changed in place, that nothing is
// emitted, and that a rejection does not change it.
func TestTransientTypes(t *testing.T) {
	typ := hostd.Transient[orderLen](`presence`, hostd.JSON, hostd.Singleton())
	hostd.Command(typ, "enter", func(_ *hostd.Context, s *orderLen, n int) (orderLen, error) {
		if s.Lines += n; n < 0 {
			return orderLen{}, hostd.Reject("negative", "")
		}
		return *s, nil
	})
	d := hostdtest.New(t, typ)
	if out := d.When("enter", 2).Reply(orderLen{2}).Output(); out.HasState || len(out.Events) > 0 {
		t.Errorf("a transient type emits %+v", out)
	}
	d.When("enter", -1).Rejected("negative")
	d.When("enter", 3).Reply(orderLen{5})
	if !typ.IsTransient() || typ.IsDurable() {
		t.Error("what it is")
	}
	if got := string(hostd.NewGuest("m", "1", typ).Describe()); !strings.Contains(got, `"kind":"transient"`) || !strings.Contains(got, `"singleton":true`) {
		t.Error(got)
	}
}

// TestSchedules checks the output of a command that sets a schedule, and the
// input of the scheduled command.
func TestSchedules(t *testing.T) {
	typ := hostd.Entity[int](`clock`, hostd.JSON)
	hostd.Command(typ, "start", func(c *hostd.Context, _ *int, _ hostd.None) (int64, error) {
		c.Schedule("poll", hostd.Schedule{Every: 90 * hostd.Second, Missed: hostd.MissedSkip, Command: "start"})
		c.Schedule("report", hostd.Schedule{Cron: "0 3 * * mon-fri", Zone: "Europe/Berlin", Missed: hostd.MissedAll, Command: "start", Payload: 7})
		return int64(c.Due()), nil
	})
	want := []abi.Timer{
		{Name: []byte("poll"), Expression: []byte("@every 90000000000ns"), Zone: []byte{}, Missed: abi.MissedSkip, Command: []byte("start"), Payload: []byte{}},
		{Name: []byte("report"), Expression: []byte("0 3 * * mon-fri"), Zone: []byte("Europe/Berlin"), Missed: abi.MissedAll, Command: []byte("start"), Payload: []byte("7")},
	}
	d := hostdtest.New(t, typ)
	if got := d.When("start", nil).Reply(int64(0)).Output().Timers; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	due := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	d.FromTimerDue(due).When("start", nil).Reply(due.UnixNano())
}

func TestCommandOutputs(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	d := hostdtest.New(t, orders()).ID("o-1").At(now)
	r := d.When("pay", nil).Events(paid{now.UnixNano()})
	out := r.Output()
	if out.Reply != nil || !out.Passivate || out.Delete {
		t.Errorf("%+v", out)
	}
	wantSends := []abi.Send{
		{EntityType: []byte("ledger"), EntityID: []byte("main"), Command: []byte("book"), Payload: []byte(`{"Line":"o-1"}`)},
		{EntityType: []byte("ledger"), EntityID: []byte("main"), Command: []byte("check"), Payload: []byte{}, WantsAnswer: true, OnReply: []byte("ok"), OnReject: []byte("no")},
	}
	if !reflect.DeepEqual(out.Sends, wantSends) {
		t.Errorf("%+v", out.Sends)
	}
	wantTimers := []abi.Timer{
		{Name: []byte("ship"), Due: now.Add(time.Hour).UnixNano(), Command: []byte("ship"), Payload: []byte(`{"lines":0}`)},
		{Name: []byte("remind"), Cancel: true},
	}
	if !reflect.DeepEqual(out.Timers, wantTimers) {
		t.Errorf("%+v", out.Timers)
	}
	if !reflect.DeepEqual(d.Log(), []string{"paid order"}) {
		t.Errorf("%q", d.Log())
	}
	if d.When("cancel", nil); d.State().Paid {
		t.Error("a deleted entity kept its state")
	}
}

func TestContextReturnsHostInput(t *testing.T) {
	d := hostdtest.New(t, orders()).ID("o-9").At(time.Unix(5, 6)).Given(lineWas{"a"})
	first := string(d.CommandID("c-7").When("who", nil).Output().Reply)
	for _, want := range []string{`"id":"o-9"`, `"command":"c-7"`, `"sequence":1`, `"now":5000000006`, `"source":{"Kind":1,"EntityType":"","EntityID":""}`} {
		if !strings.Contains(first, want) {
			t.Errorf("%s\nlacks %s", first, want)
		}
	}
	second := string(d.From("account", "a1").When("who", nil).Output().Reply)
	if !strings.Contains(second, `"source":{"Kind":3,"EntityType":"account","EntityID":"a1"}`) {
		t.Error(second)
	}
	if third := string(d.FromTimer().When("who", nil).Output().Reply); !strings.Contains(third, `"source":{"Kind":2,`) {
		t.Error(third)
	}
	random := func(text string) string {
		return text[strings.Index(text, `"random"`):strings.Index(text, `,"sequence"`)]
	}
	if random(first) == random(second) {
		t.Error("two commands drew the same random numbers")
	}
}

func TestDescribeIsAManifest(t *testing.T) {
	g := hostd.NewGuest("shop", "2.0.0", orders(), notes())
	m, err := manifest.Parse(g.Describe())
	if err != nil {
		t.Fatal(err)
	}
	o, n := m.EntityTypes[0], m.EntityTypes[1]
	if m.Name != "shop" || m.Version != "2.0.0" || o.Kind != manifest.EventSourced || o.Encoding != manifest.JSON ||
		o.SnapshotEvery != 50 || o.PassivateAfter != 90*time.Second || !o.AlwaysOn || o.ShardKey != (manifest.ShardKey{Group: "customer", Until: "-"}) ||
		len(o.Commands) != 6 || o.Queries[0].Name != "length" || o.Events[1].Type != "paid" {
		t.Errorf("%+v", m)
	}
	if o.Sends != nil || !slices.Equal(o.AcceptsFrom, []string{"account", "audit-*"}) || n.Sends == nil || len(n.Sends) != 0 || n.AcceptsFrom != nil {
		t.Errorf("they send to %q and %q, and accept from %q and %q", o.Sends, n.Sends, o.AcceptsFrom, n.AcceptsFrom)
	}
	if n.Kind != manifest.DurableState || n.Encoding != manifest.Bytes || n.Events == nil || len(n.Events) != 0 {
		t.Errorf("%+v", n)
	}
}

func notes() *hostd.Type[note] {
	n := hostd.Durable[note]("note", hostd.Bytes, hostd.Sends())
	hostd.Command(n, "write", func(_ *hostd.Context, s *note, text string) (string, error) {
		s.text = append(s.text, text...)
		if len(s.text) > 10 {
			return "", hostd.Reject("full", "the note is full")
		}
		return strings.ToUpper(text), nil
	})
	return n
}

// note has its own encoding.
type note struct{ text []byte }

func (n note) AppendBinary(dst []byte) ([]byte, error) {
	return append(append(dst, '#'), n.text...), nil
}

func (n *note) UnmarshalBinary(data []byte) error {
	if len(data) == 0 || data[0] != '#' {
		return errors.New("not a note")
	}
	n.text = data[1:]
	return nil
}

func TestDurableState(t *testing.T) {
	d := hostdtest.New(t, notes())
	if out := d.When("write", []byte("hello")).Reply([]byte("HELLO")).Output(); string(out.State) != "#hello" {
		t.Errorf("%q", out.State)
	}
	if out := d.When("write", nil).Output(); out.HasState {
		t.Error("a state that did not change was stored")
	}
	d.When("write", []byte("too much")).Rejected("full")
	d.Then(note{[]byte("hello")})
}

func TestUnreadableSnapshot(t *testing.T) {
	g := hostd.NewGuest("shop", "", orders(), notes())
	for typ, snapshot := range []string{`{"lines":1}`, "no note"} {
		if status := g.Load(int32(typ), 0, abi.AppendSnapshot(nil, []byte(snapshot))); status != abi.LoadUnreadable {
			t.Errorf("type %d: %d", typ, status)
		}
	}
	if status := g.Load(0, 1<<40, nil); status != abi.LoadNoRoom {
		t.Errorf("a handle out of reach: %d", status)
	}
}

func TestApplyRejectsUndecodableEvents(t *testing.T) {
	for name, batch := range map[string][]byte{
		"unknown type": abi.AppendInputEvent(nil, 1, 0, "renamed", nil),
		"bad payload":  abi.AppendInputEvent(nil, 1, 0, "line-added", []byte(`{"Line":1}`)),
		"bad frame":    abi.AppendFrame(nil, abi.InEvent, "short"),
	} {
		g := hostd.NewGuest("shop", "", orders())
		g.Load(0, 0, nil)
		if status := g.Apply(0, batch); status == abi.ApplyDone {
			t.Errorf("%s was applied", name)
		}
	}
}

func TestContractViolationsByHostPanic(t *testing.T) {
	g := hostd.NewGuest("shop", "", orders())
	g.Load(0, 0, nil)
	for name, f := range map[string]func(){
		"unknown type":    func() { g.Load(1, 0, nil) },
		"unknown handle":  func() { g.Handle(7, nil) },
		"negative handle": func() { g.Snapshot(-1) },
		"dropped handle":  func() { g.Load(0, 3, nil); g.Drop(3); g.Query(3, nil) },
		"no frames":       func() { g.Handle(0, []byte{1}) },
	} {
		mustPanic(t, name, "", f)
	}
}

func TestInvalidRegistrationPanicsWithReason(t *testing.T) {
	handler := func(*hostd.Context, *order, hostd.None) (hostd.None, error) { return hostd.None{}, nil }
	entity := func() *hostd.Type[order] { return hostd.Entity[order]("order", hostd.JSON) }
	for want, f := range map[string]func(){
		"entity type: only a-z":               func() { hostd.Entity[order]("Order", hostd.JSON) },
		"state: hostd_test.note.text: is not": func() { hostd.Entity[note]("note", hostd.JSON) },
		`sends "A*": entity type: only a-z`:   func() { hostd.Entity[order]("order", hostd.JSON, hostd.Sends("A*")) },
		"accepts from more than 64 types":     func() { hostd.Entity[order]("order", hostd.JSON, hostd.AcceptsFrom(make([]string, 65)...)) },
		"chan int: with the bytes encoding":   func() { hostd.Entity[chan int]("c", hostd.Bytes) },
		"command add is declared twice":       func() { o := entity(); hostd.Command(o, "add", handler); hostd.Command(o, "add", handler) },
		"command: is empty":                   func() { hostd.Command(entity(), "", handler) },
		"hostd_test.paid is declared as two events": func() {
			o := entity()
			hostd.Event(o, "a", func(*order, paid) {})
			hostd.Event(o, "b", func(*order, paid) {})
		},
		"a durable-state type has no events":    func() { hostd.Event(notes(), "a", func(*note, string) {}) },
		"a module needs an entity type":         func() { hostd.NewGuest("m", "") },
		"entity type order is registered twice": func() { hostd.NewGuest("m", "", entity(), entity()) },
		"module: is empty":                      func() { hostd.NewGuest("", "", entity()) },
		"int is not an event of this type": func() {
			o := entity()
			hostd.Command(o, "bad", func(c *hostd.Context, _ *order, _ hostd.None) (hostd.None, error) {
				c.Emit(5)
				return hostd.None{}, nil
			})
			hostdtest.New(t, o).When("bad", nil)
		},
		"nil is not an event of this type": func() {
			o := entity()
			hostd.Command(o, "bad", func(c *hostd.Context, _ *order, _ hostd.None) (hostd.None, error) {
				c.Emit(nil)
				return hostd.None{}, nil
			})
			hostdtest.New(t, o).When("bad", nil)
		},
	} {
		mustPanic(t, want, want, f)
	}
}

func mustPanic(t *testing.T, name, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		text, _ := recover().(string)
		if !strings.HasPrefix(text, "hostd: ") || !strings.Contains(text, want) {
			t.Errorf("%s: panic %q, want %q in it", name, text, want)
		}
	}()
	f()
}

// TestOverlongNamesDoNotPanic checks that a name that is too long for a frame
// is left to the host's limits, and does not make the guest panic.
func TestOverlongNamesDoNotPanic(t *testing.T) {
	e := hostd.Entity[int]("t", hostd.JSON)
	for name, do := range map[string]func(c *hostd.Context, long string) error{
		"id": func(c *hostd.Context, long string) error { c.Send("other", long, "do", nil); return nil },
		"answer": func(c *hostd.Context, long string) error {
			c.SendWithAnswer("other", "a", "do", nil, hostd.Answer{OnReply: long, OnReject: "no"})
			return nil
		},
		"timer": func(c *hostd.Context, long string) error { c.SetTimer(long, 1, "do", nil); return nil },
		"schedule": func(c *hostd.Context, long string) error {
			c.Schedule("s", hostd.Schedule{Cron: "@daily", Command: long})
			return nil
		},
		"cancel": func(c *hostd.Context, long string) error { c.CancelTimer(long); return nil },
		"code":   func(_ *hostd.Context, long string) error { return hostd.Reject(long, "") },
	} {
		hostd.Command(e, name, func(c *hostd.Context, _ *int, n int) (hostd.None, error) {
			return hostd.None{}, do(c, strings.Repeat("n", n))
		})
	}
	g := hostd.NewGuest("m", "", e)
	g.Load(0, 0, nil)
	limits := abi.DefaultLimits()
	for _, name := range []string{"id", "answer", "timer", "schedule", "cancel", "code"} {
		for _, n := range []string{"257", "65535", "65536", "70000"} {
			var out abi.Output
			frames := g.Handle(0, abi.AppendPayload(abi.AppendName(nil, name), []byte(n)))
			if err := abi.ParseOutput(&out, frames, abi.HandleEvents, &limits); !errors.Is(err, abi.ErrOverLimit) {
				t.Errorf("%s of %s bytes: %v", name, n, err)
			}
		}
	}
}

// TestHandleDoesNotAllocate checks that a command on a small state allocates
// only what its own types need.
func TestHandleDoesNotAllocate(t *testing.T) {
	type total struct{ N int64 }
	type added struct{ N int64 }
	e := hostd.Entity[total]("t", hostd.JSON)
	hostd.Event(e, "added", func(s *total, a added) { s.N += a.N })
	hostd.Command(e, "add", func(c *hostd.Context, s *total, a added) (total, error) {
		c.Emit(a)
		return *s, nil
	})
	g := hostd.NewGuest("m", "", e)
	g.Load(0, 0, nil)
	input := abi.AppendPayload(abi.AppendName(nil, "add"), []byte(`{"N":3}`))
	g.Handle(0, input)
	if n := testing.AllocsPerRun(100, func() { g.Handle(0, input) }); n > 1 { // one allocation: the event, which Emit receives as an interface
		t.Errorf("%v allocations", n)
	}
}
