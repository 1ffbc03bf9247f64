package hostdtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// World runs many entities of one module that send to each other. Its simulated
// host delivers each send once: in order between any two entities, and
// otherwise in random order. It enforces Sends and AcceptsFrom. Sends are
// delivered and timers fire only in Step, Run and Advance, so that a test
// controls which events race.
//
//	w := hostdtest.NewWorld(t, 1, Transfer(), Account())
//	w.Command("transfer", "t1", "start", Start{From: "a", To: "b", Amount: 3})
//	w.Run()
type World struct {
	t        testing.TB
	guest    *hostd.Guest
	random   *rand.Rand
	now      time.Time
	limits   abi.Limits
	types    map[string]worldType
	entities map[name]*worldEntity
	handles  int64
	commands int
	outbox   []*Sent
	timers   []worldTimer
	letters  []Letter

	principal []byte // the principal frame
}

type name struct{ Type, ID string }

type worldType struct {
	forms    *forms
	index    int32
	durable  bool
	commands map[string]bool // all declared commands
	internal map[string]bool // commands that no client may send
	sends    []string        // types to which it may send; nil means any
	accepts  []string        // types whose messages it accepts; nil means any
}

type worldEntity struct {
	handle   int64
	sequence uint64
}

type worldTimer struct {
	of            name
	name, command string
	due           time.Time
	payload       []byte
}

// Sent is an undelivered send.
type Sent struct {
	FromType, FromID, ToType, ToID, Command string
	Payload                                 []byte
	onReply, onReject                       string
	answers                                 bool // this send is the outcome of another send
}

// Letter is a rejected send whose outcome no entity waits for.
type Letter struct {
	Sent
	Code, Message string
}

// Outcome is the result of a command or query of a World.
type Outcome struct {
	Reply         []byte
	Rejected      bool
	Code, Message string
}

// NewWorld returns a world of these types. The seed determines the order in
// which Step and Run deliver. The time starts on 1 January 2026.
func NewWorld(t testing.TB, seed uint64, types ...hostd.Registration) *World {
	t.Helper()
	w := &World{
		t: t, guest: hostd.NewGuest("test", "", types...), random: rand.New(rand.NewPCG(seed, 3)), limits: abi.DefaultLimits(),
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), types: make(map[string]worldType), entities: make(map[name]*worldEntity),
	}
	var manifest struct {
		EntityTypes []struct {
			Name     string
			Kind     string
			Commands []struct {
				Name     string
				Internal bool
			}
			Sends, AcceptsFrom []string
		}
	}
	if err := json.Unmarshal(w.guest.Describe(), &manifest); err != nil {
		t.Fatal(err)
	}
	compiled := formsOf(t, w.guest)
	for i, typ := range manifest.EntityTypes {
		known := worldType{index: int32(i), durable: typ.Kind == "durable-state", commands: make(map[string]bool), internal: make(map[string]bool), sends: typ.Sends, accepts: typ.AcceptsFrom}
		for _, c := range typ.Commands {
			known.commands[c.Name] = true
			known.internal[c.Name] = c.Internal
		}
		known.forms = compiled[typ.Name]
		w.types[typ.Name] = known
	}
	return w
}

// Now returns the world's time.
func (w *World) Now() time.Time { return w.now }

// As sets the caller of the following commands, as Driver.As does.
func (w *World) As(kind, name string, groups ...string) *World {
	w.principal = abi.AppendPrincipal(nil, kind, name, groups...)
	return w
}

// Command sends a client's command. The payload is as for Driver.When. An
// internal command is rejected with the code CodeInternal.
func (w *World) Command(entityType, id, command string, payload any) Outcome {
	w.t.Helper()
	if _, ok := w.types[entityType]; !ok {
		w.t.Fatalf("there is no entity type %s", entityType)
	}
	if w.types[entityType].internal[command] {
		return Outcome{Rejected: true, Code: CodeInternal, Message: "the command is internal"}
	}
	text := w.encode(payload)
	if why := w.types[entityType].forms.refusal(w.types[entityType].forms.commands, command, text, false); why != "" {
		return Outcome{Rejected: true, Code: hostd.CodeInvalidPayload, Message: why}
	}
	return w.run(name{entityType, id}, command, text, abi.Source{Kind: abi.SourceClient})
}

// Query runs a query.
func (w *World) Query(entityType, id, query string, payload any) Outcome {
	w.t.Helper()
	e := w.entity(name{entityType, id})
	return w.outcome(w.guest.Query(e.handle, w.request(e, query, w.encode(payload))), abi.QueryOnly)
}

// Sends returns the undelivered sends, in the order they were made.
func (w *World) Sends() []*Sent { return w.outbox }

// DeadLetters returns the sends that became dead letters.
func (w *World) DeadLetters() []Letter { return w.letters }

// Step delivers one send, which is the first send between a random pair of
// entities. It returns false if there was no send.
func (w *World) Step() bool {
	w.t.Helper()
	if len(w.outbox) == 0 {
		return false
	}
	i := w.random.IntN(len(w.outbox))
	for j, s := range w.outbox[:i] {
		if s.FromType == w.outbox[i].FromType && s.FromID == w.outbox[i].FromID && s.ToType == w.outbox[i].ToType && s.ToID == w.outbox[i].ToID {
			i = j
			break
		}
	}
	s := w.outbox[i]
	w.outbox = slices.Delete(w.outbox, i, i+1)
	w.deliver(s)
	return true
}

// Run delivers until no send is left. It fires no timers.
func (w *World) Run() {
	w.t.Helper()
	for n := 0; w.Step(); n++ {
		if n == 1_000_000 {
			w.t.Fatal("the entities send for ever")
		}
	}
}

// Advance advances the time and fires the due timers, the earliest first. It
// delivers no sends.
func (w *World) Advance(by time.Duration) {
	w.t.Helper()
	end := w.now.Add(by)
	for {
		slices.SortStableFunc(w.timers, func(a, b worldTimer) int { return a.due.Compare(b.due) })
		if len(w.timers) == 0 || w.timers[0].due.After(end) {
			break
		}
		t := w.timers[0]
		w.timers = w.timers[1:]
		if t.due.After(w.now) {
			w.now = t.due
		}
		w.run(t.of, t.command, t.payload, abi.Source{Kind: abi.SourceTimer})
	}
	w.now = end
}

func (w *World) deliver(s *Sent) {
	w.t.Helper()
	to := name{s.ToType, s.ToID}
	typ, known := w.types[s.ToType]
	if !known { // the host answers on behalf of the source
		w.answer(s, name{s.FromType, s.FromID}, Outcome{Rejected: true, Code: "not_found", Message: "the entity type does not exist"})
		return
	}
	if from := (name{s.FromType, s.FromID}); from != to && !s.answers && !abi.MatchesType(typ.accepts, s.FromType) {
		w.answer(s, to, Outcome{Rejected: true, Code: CodeNotAccepted, Message: "the entity type does not accept messages from the sender's type"})
		return
	}
	if !typ.commands[s.Command] {
		w.answer(s, to, Outcome{Rejected: true, Code: "not_found", Message: "the entity type has no such command"})
		return
	}
	if why := typ.forms.refusal(typ.forms.commands, s.Command, s.Payload, true); why != "" {
		w.answer(s, to, Outcome{Rejected: true, Code: hostd.CodeInvalidPayload, Message: why})
		return
	}
	w.answer(s, to, w.run(to, s.Command, s.Payload,
		abi.Source{Kind: abi.SourceEntity, EntityType: []byte(s.FromType), EntityID: []byte(s.FromID)}))
}

// answer sends the outcome of a send back.
func (w *World) answer(s *Sent, from name, o Outcome) {
	back := &Sent{FromType: from.Type, FromID: from.ID, ToType: s.FromType, ToID: s.FromID, Command: s.onReply, Payload: o.Reply, answers: true}
	switch {
	case s.onReply == "" && o.Rejected:
		w.letters = append(w.letters, Letter{*s, o.Code, o.Message})
		return
	case s.onReply == "":
		return
	case o.Rejected:
		payload, err := json.Marshal(map[string]string{"code": o.Code, "message": o.Message})
		if err != nil {
			w.t.Fatal(err)
		}
		back.Command, back.Payload = s.onReject, payload
	}
	w.outbox = append(w.outbox, back)
}

func (w *World) entity(of name) *worldEntity {
	if e := w.entities[of]; e != nil {
		return e
	}
	e := &worldEntity{handle: w.handles}
	w.handles++
	w.entities[of] = e
	w.load(of, e, nil)
	return e
}

func (w *World) load(of name, e *worldEntity, snapshot []byte) {
	input := abi.AppendSequence(abi.AppendEntityID(nil, of.ID), e.sequence)
	if snapshot != nil {
		input = abi.AppendSnapshot(input, snapshot)
	}
	if status := w.guest.Load(w.types[of.Type].index, e.handle, input); status != abi.LoadDone {
		w.t.Fatalf("%s/%s does not load: %d", of.Type, of.ID, status)
	}
}

func (w *World) request(e *worldEntity, name string, payload []byte) []byte {
	input := abi.AppendSequence(nil, e.sequence)
	input = abi.AppendName(input, name)
	input = abi.AppendPayload(input, payload)
	return abi.AppendNow(input, w.now.UnixNano())
}

// run runs a command, and records its sends and timers.
func (w *World) run(of name, command string, payload []byte, source abi.Source) Outcome {
	w.t.Helper()
	e := w.entity(of)
	w.commands++
	before := bytes.Clone(w.guest.Snapshot(e.handle))
	input := w.request(e, command, payload)
	input = abi.AppendCommandID(input, fmt.Sprintf("command-%d", w.commands))
	input = abi.AppendSeed(input, uint64(w.commands))
	if source.Kind == abi.SourceClient {
		input = append(input, w.principal...)
	}
	input = abi.AppendSource(input, source)
	mode := abi.HandleEvents
	if w.types[of.Type].durable {
		mode = abi.HandleState
	}
	frames := bytes.Clone(w.guest.Handle(e.handle, input))
	o := w.outcome(frames, mode)
	if o.Rejected {
		w.load(of, e, before)
		return o
	}
	var out abi.Output
	if err := abi.ParseOutput(&out, frames, mode, &w.limits); err != nil {
		w.t.Fatal(err)
	}
	e.sequence += uint64(len(out.Events))
	for _, s := range out.Sends {
		if to := (name{string(s.EntityType), string(s.EntityID)}); to != of && !abi.MatchesType(w.types[of.Type].sends, to.Type) {
			w.t.Fatalf("%s of %s/%s sends to %s, which the type's Sends does not name", command, of.Type, of.ID, to.Type)
		}
		w.outbox = append(w.outbox, &Sent{of.Type, of.ID, string(s.EntityType), string(s.EntityID), string(s.Command), s.Payload, string(s.OnReply), string(s.OnReject), false})
	}
	for _, t := range out.Timers {
		w.timers = slices.DeleteFunc(w.timers, func(x worldTimer) bool { return x.of == of && x.name == string(t.Name) })
		if !t.Cancel {
			w.timers = append(w.timers, worldTimer{of, string(t.Name), string(t.Command), time.Unix(0, t.Due).UTC(), t.Payload})
		}
	}
	if out.Delete {
		w.timers = slices.DeleteFunc(w.timers, func(x worldTimer) bool { return x.of == of })
		w.load(of, e, nil)
	}
	return o
}

func (w *World) outcome(frames []byte, mode abi.Mode) Outcome {
	w.t.Helper()
	var out abi.Output
	if err := abi.ParseOutput(&out, bytes.Clone(frames), mode, &w.limits); err != nil {
		w.t.Fatal(err)
	}
	return Outcome{bytes.Clone(out.Reply), out.Rejected, string(out.Reject.Code), string(out.Reject.Message)}
}

func (w *World) encode(payload any) []byte {
	w.t.Helper()
	switch p := payload.(type) {
	case nil:
		return nil
	case []byte:
		return p
	case hostd.RawJSON:
		return p
	}
	b, err := json.Marshal(payload)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}
