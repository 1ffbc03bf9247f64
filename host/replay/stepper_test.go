package replay_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/testkit"
	testguest "github.com/hostd/hostd/tests/support/testkit/guest"
)

// stepping is a stepper whose steps must succeed.
type stepping struct {
	*replay.Stepper
	t *testing.T
}

func newStepper(t *testing.T, wasm []byte, entityType string) stepping {
	t.Helper()
	dir, key := testkit.ModuleCache(t)
	e, err := guest.New(t.Context(), guest.Options{CacheDir: dir, CacheKey: key})
	if err != nil {
		t.Fatal(err)
	}
	m, err := e.Compile(t.Context(), sha256.Sum256(wasm), wasm)
	if err != nil {
		t.Fatal(err)
	}
	s, err := replay.NewStepper(t.Context(), m, sharding.EntityID{Type: entityType, ID: "mall7-user42"}, e.Limits(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if err := errors.Join(m.Close(), e.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return stepping{s, t}
}

func (s stepping) step(sequence uint64, name, payload string) {
	s.t.Helper()
	if err := s.Step(s.t.Context(), replay.StepEvent{Sequence: sequence, RecordedAt: int64(sequence), Type: name, Payload: []byte(payload)}); err != nil {
		s.t.Fatalf("event %d: %v", sequence, err)
	}
}

func (s stepping) is(sequence uint64, want string) {
	s.t.Helper()
	if state, err := s.State(); err != nil || string(state) != want || s.Sequence() != sequence {
		s.t.Fatalf("the state of event %d is %s, %v, want %s of event %d", s.Sequence(), state, err, want, sequence)
	}
}

// TestStepperResetsAfterTombstone checks that a life after a tombstone begins with the
// initial state, for both kinds of types.
func TestStepperResetsAfterTombstone(t *testing.T) {
	s := newStepper(t, testkit.BuildExample(t, "counter"), "counter")
	s.is(0, `{"total":0}`)
	s.step(1, "added", `{"amount":3}`)
	s.step(2, "added", `{"amount":4}`)
	s.is(2, `{"total":7}`)
	s.step(3, journal.TombstoneEvent, "")
	s.is(3, `{"total":0}`)
	s.step(4, "added", `{"amount":5}`)
	s.is(4, `{"total":5}`)

	d := newStepper(t, testkit.BuildExample(t, "session"), "session")
	empty, err := d.State()
	if err != nil {
		t.Fatal(err)
	}
	first := string(empty)
	out, err := d.Command(t.Context(), replay.StepCommand{Name: "login", ID: "c1", Now: 1})
	if err != nil || out.Rejected || !out.HasState {
		t.Fatal(out, err)
	}
	in := string(out.State)
	if in == first {
		t.Fatalf("who is logged in is %s", in)
	}
	d.is(1, in)
	d.step(2, "state", in)
	d.step(3, journal.TombstoneEvent, "")
	d.is(3, first)
	d.step(4, "state", in)
	d.is(4, in)
}

// TestStepperBeginsWithState checks that a history whose first events are gone
// can begin with a state, for both kinds of types, and that a state that the
// module cannot read is rejected.
func TestStepperBeginsWithState(t *testing.T) {
	s := newStepper(t, testkit.BuildExample(t, "counter"), "counter")
	if err := s.Begin(t.Context(), 40, []byte(`{"total":17}`), 0); err != nil {
		t.Fatal(err)
	}
	s.is(40, `{"total":17}`)
	if err := s.Step(t.Context(), replay.StepEvent{Sequence: 42, Type: "added", Payload: []byte(`{"amount":1}`)}); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("event 42 after event 40: %v", err)
	}
	s.step(41, "added", `{"amount":4}`)
	s.is(41, `{"total":21}`)
	s.step(42, journal.TombstoneEvent, "")
	s.is(42, `{"total":0}`)
	if err := s.Begin(t.Context(), 50, []byte("no state"), 0); err == nil {
		t.Error("no state is taken for one")
	}
	var unread *manifest.UnreadStateError
	if err := s.Begin(t.Context(), 51, []byte(`{"total":17}`), 2); !errors.As(err, &unread) || unread.Version != 2 {
		t.Errorf("a state of another version: %v", err)
	}
	empty := newStepper(t, testguest.Module{Bad: "shop"}.Build(), "shop")
	if err := empty.Begin(t.Context(), 3, nil, 0); err != nil {
		t.Errorf("a state of no bytes: %v", err)
	}
	empty.is(3, "")
}

// TestStepperRejectsGaps checks that events must be consecutive, including
// events that commands emit.
func TestStepperRejectsGaps(t *testing.T) {
	s := newStepper(t, testkit.BuildExample(t, "counter"), "counter")
	s.step(1, "added", `{"amount":3}`)
	for _, sequence := range []uint64{0, 1, 3} {
		if err := s.Step(t.Context(), replay.StepEvent{Sequence: sequence, Type: "added", Payload: []byte(`{"amount":1}`)}); !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("event %d after event 1: %v", sequence, err)
		}
	}
	s.is(1, `{"total":3}`)
	out, err := s.Command(t.Context(), replay.StepCommand{Name: "add", Payload: []byte(`{"amount":4}`), ID: "c1", Now: 1})
	if err != nil || out.Rejected || len(out.Events) != 1 || string(out.Reply) != `{"total":7}` {
		t.Fatal(out, err)
	}
	s.is(2, `{"total":7}`)
	if _, err := s.Command(t.Context(), replay.StepCommand{Name: "ad"}); !errors.Is(err, request.ErrUnknownCommand) || !strings.Contains(err.Error(), `"add"`) {
		t.Errorf("a misspelt command: %v", err)
	}
	if _, err := s.Command(t.Context(), replay.StepCommand{Name: "add", Payload: []byte(`{"amout":4}`)}); !strings.Contains(fmt.Sprint(err), `"amount"`) {
		t.Errorf("a misspelt member: %v", err)
	}
	out, err = s.Command(t.Context(), replay.StepCommand{Name: "add", Payload: []byte(`{"amount":9223372036854775807}`), ID: "c2", Now: 1})
	if err != nil || !out.Rejected || string(out.Reject.Code) != "overflow" {
		t.Fatal(out, err)
	}
	s.is(2, `{"total":7}`)
	s.step(3, "reset", "{}")
	s.is(3, `{"total":0}`)
}

// TestStepperReturnsFault checks that an event on which the guest fails
// returns the fault, and that later calls report that the instance is dead.
func TestStepperReturnsFault(t *testing.T) {
	failing := testguest.Module{Bad: "shop", Apply: []byte{0x20, 1, 0x04, 0x40, 0x00, 0x0b, 0x41, 0}} // traps if there is an event
	s := newStepper(t, failing.Build(), "shop")
	var fault *guest.Fault
	if err := s.Step(t.Context(), replay.StepEvent{Sequence: 1, Type: "happened"}); !errors.As(err, &fault) {
		t.Fatalf("a trap is %v", err)
	}
	if _, err := s.State(); !errors.Is(err, guest.ErrInstanceDead) {
		t.Errorf("the state after it: %v", err)
	}
	if err := s.Step(t.Context(), replay.StepEvent{Sequence: 2, Type: "happened"}); !errors.Is(err, guest.ErrInstanceDead) {
		t.Errorf("an event after it: %v", err)
	}
	if _, err := s.Command(t.Context(), replay.StepCommand{Name: "go"}); !errors.Is(err, guest.ErrInstanceDead) {
		t.Errorf("a command after it: %v", err)
	}
}
