package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/guests"
	testguest "github.com/hostd/hostd/tests/support/testkit/guest"
)

// orders are the entity types of these tests. Each has an older form of an
// event, which the guest upcasts to the given payload.
var orders = []struct {
	name, encoding string
	makes          string // the payload that the guest returns
	code           []byte // runs first and leaves nothing on the stack; may be nil
}{
	{name: "order", encoding: "json", makes: `{"n":2}`},
	{name: "other", encoding: "json", makes: `{"n":2}`},
	{name: "third", encoding: "json", makes: `{"n":2}`},
	{name: "empty", encoding: "json"},
	{name: "half", encoding: "json", makes: `{"n":`},
	{name: "text", encoding: "json", makes: "\"\xff\""},
	{name: "two", encoding: "json", makes: `{} {}`},
	{name: "bytes", encoding: "bytes", makes: `{"n":`},
	// A loop with this many iterations costs several units of fuel each.
	{name: "dear", encoding: "json", makes: `{"n":2}`, code: append(testguest.Count(fuelOfEvent*piece), 0x1a)},
	{name: "endless", encoding: "json", code: []byte{0x03, 0x40, 0x0c, 0x00, 0x0b, 0x00}},
	{name: "trap", encoding: "bytes", code: testguest.Unreachable},
	{name: "cut", encoding: "bytes", makes: "not all of it"},
}

// upcastWorld has Upcasts of one module.
type upcastWorld struct {
	*Upcasts
	t *testing.T
	// opening, if set, is called when a module is requested.
	opening func(ctx context.Context)
	module  *guest.Module
}

// ClusterVersion, ServedType, For and Module implement what Upcasts need.
func (w *upcastWorld) ClusterVersion() sharding.ClusterVersion { return sharding.Version2 }

func (w *upcastWorld) ServedType(name string) *modules.Served {
	return &modules.Served{Type: entity.Type{Name: name, Digest: w.module.Digest()}}
}

func (w *upcastWorld) For(id sharding.EntityID) *modules.Served { return w.ServedType(id.Type) }

func (w *upcastWorld) Module(ctx context.Context, _ journal.Digest, _ sharding.NodeID) (*guest.Module, error) {
	if w.opening != nil {
		w.opening(ctx)
	}
	return w.module, nil
}

func newUpcastWorld(t *testing.T) *upcastWorld {
	t.Helper()
	var types []string
	var frames []byte
	code := slices.Clone(testguest.Unreachable)
	for i, o := range orders {
		types = append(types, fmt.Sprintf(`{"name":%q,"kind":"event-sourced","encoding":%q,"events":[{"type":"placed.v2"},{"type":"placed","upcastTo":"placed.v2"},{"type":"moved.v2"},{"type":"moved","upcastTo":"moved.v2"}]}`, o.name, o.encoding))
		answer := abi.AppendEvent(nil, "placed.v2", []byte(o.makes))
		length := len(answer)
		if o.name == "cut" {
			length--
		}
		// if the event has this type, runs the type's code and returns its payload;
		// otherwise runs the code of the other types
		code = slices.Concat([]byte{0x20, 0x00, 0x41, byte(i), 0x46, 0x04, 0x7e}, o.code, testguest.Span(uint32(testguest.FramesAt+len(frames)), uint32(length)), []byte{0x05}, code, []byte{0x0b})
		frames = append(frames, answer...)
	}
	m := guests.Compile(t, testguest.Module{Upcast: code, Frames: frames, Manifest: `{"abi":1,"name":"m","entityTypes":[` + strings.Join(types, ",") + `]}`}.Build(), nil)
	w := &upcastWorld{t: t}
	w.module = m
	w.Upcasts = &Upcasts{
		metadata: w, types: w, modules: w,
		seats: newSeats(maxUpcasting, maxUpcastingOfType, idle), about: map[upcasterKey]upcasts{},
	}
	for _, o := range orders { // caches the descriptions of the types
		if err := w.Check(t.Context(), o.name); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := w.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// read upcasts the seventh event of an entity.
func (w *upcastWorld) read(ctx context.Context, entityType, event string) (string, error) {
	name, payload, err := w.Upcast(ctx, sharding.EntityID{Type: entityType, ID: "1"}, 7, 1, &journal.Event{Type: event, Payload: []byte(`{"n":1}`)})
	return name + " " + string(payload), err
}

// is upcasts an event and checks the result.
func (w *upcastWorld) is(entityType, want string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if got, err := w.read(ctx, entityType, "placed"); err != nil || got != want {
		w.t.Errorf("an event of %s becomes %s, %v, want %s", entityType, got, err, want)
	}
}

// TestUpcastResultMustBeValidEvent checks that readers get the result of a guest only
// if it is a valid event of the type in the type's encoding. Otherwise the
// error names the event, and the next event is upcast.
func TestUpcastResultMustBeValidEvent(t *testing.T) {
	w := newUpcastWorld(t)
	for range 2 { // the second time with existing instances if they are reusable, otherwise with new ones
		w.is("order", `placed.v2 {"n":2}`)
		w.is("empty", "placed.v2 ")
		w.is("bytes", `placed.v2 {"n":`)
		for _, entityType := range []string{"half", "text", "two"} {
			w.fails(entityType, "placed", fmt.Sprintf("cannot upcast event 7 (placed) of %s/1: hostd_upcast returned a payload that is not JSON", entityType))
		}
		w.fails("order", "moved", `cannot upcast event 7 (moved) of order/1: hostd_upcast returned the event type "placed.v2", but the manifest says moved.v2`)
		w.fails("cut", "placed", "cannot upcast event 7 (placed) of cut/1: hostd_upcast")
		w.fails("trap", "placed", "cannot upcast event 7 (placed) of trap/1: hostd_upcast")
		if got, err := w.read(t.Context(), "half", "placed.v2"); err != nil || got != `placed.v2 {"n":1}` {
			t.Errorf("an event of today becomes %s, %v", got, err)
		}
	}
}

// TestUpcastInstancesAreReused checks that the most recently used instances are kept
// for the next event, and that each is closed once.
func TestUpcastInstancesAreReused(t *testing.T) {
	w := newUpcastWorld(t)
	opened := 0
	w.opening = func(context.Context) { opened++ }
	turns := []string{"order", "other", "third", "bytes", "empty"}
	if len(turns) != keptUpcasters+1 {
		t.Fatalf("%d are kept", keptUpcasters)
	}
	for range 3 { // the instance of each type was closed just before the type's next turn
		for _, entityType := range turns {
			if _, err := w.read(t.Context(), entityType, "placed"); err != nil {
				t.Error(err)
			}
		}
	}
	if opened != 3*len(turns) || len(w.idle) != keptUpcasters {
		t.Errorf("%d instances were made, and %d are kept", opened, len(w.idle))
	}
	for _, entityType := range turns[1:] {
		if _, err := w.read(t.Context(), entityType, "placed"); err != nil {
			t.Error(err)
		}
	}
	if opened != 3*len(turns) {
		t.Errorf("%d instances were made, though those were kept", opened)
	}
}

func (w *upcastWorld) fails(entityType, event, text string) {
	w.t.Helper()
	got, err := w.read(w.t.Context(), entityType, event)
	if fault, is := errors.AsType[*request.GuestFaultError](err); !is || !strings.HasPrefix(fault.Message, text) {
		w.t.Errorf("it becomes %s, %v, want the fault %s", got, err, text)
	}
}

// TestSlowTypeDoesNotBlockUpcasts checks that events of other types are
// upcast however many events of one type wait, and however long its upcasts
// take. The number of concurrent upcasts is bounded, and a waiting call ends
// with its context.
func TestSlowTypeDoesNotBlockUpcasts(t *testing.T) {
	const waiting = 20
	w := newUpcastWorld(t)
	synctest.Test(t, func(t *testing.T) {
		w.seats = newSeats(maxUpcasting, maxUpcastingOfType, idle)
		type slow struct{}
		release, sitting := make(chan struct{}), make(chan struct{}, 4*waiting)
		w.opening = func(ctx context.Context) {
			if ctx.Value(slow{}) != nil {
				sitting <- struct{}{}
				<-release
			}
		}
		ended := make(chan error, 4*waiting)
		come := func(entityType string, n int) {
			for range n {
				go func() {
					_, err := w.read(context.WithValue(t.Context(), slow{}, true), entityType, "placed")
					ended <- err
				}()
			}
			synctest.Wait()
		}
		come("order", waiting)
		if len(sitting) != maxUpcastingOfType {
			t.Errorf("%d events of a type are upcast at a time", len(sitting))
		}
		if got, err := w.read(t.Context(), "third", "placed"); err != nil || got != `placed.v2 {"n":2}` {
			t.Errorf("beside a slow type an event becomes %s, %v", got, err)
		}
		come("other", waiting)
		if len(sitting) != maxUpcasting {
			t.Errorf("%d events are upcast at a time", len(sitting))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, entityType := range []string{"order", "third"} { // one waits for a seat of its type, one for any seat
			if _, err := w.read(ctx, entityType, "placed"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who waits for a seat gets %v", err)
			}
		}
		// After two slow types, events of a third type come next, except for those
		// that already wait.
		third := make(chan error, 1)
		go func() {
			_, err := w.read(t.Context(), "third", "placed")
			third <- err
		}()
		synctest.Wait()
		release <- struct{}{}
		synctest.Wait()
		select {
		case err := <-third:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("another type waits behind all events of slow ones")
		}
		close(release)
		for range 2 * waiting {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if len(w.seats.types) != 0 || len(w.seats.free) != maxUpcasting {
			t.Errorf("of %d types and %d seats it is still known who has them", len(w.seats.types), maxUpcasting-len(w.seats.free))
		}
		w.opening = nil
	})
}

// TestUpcastingYieldsToExecutors checks that a reader with many events, or with few
// expensive ones, waits while requests wait for executors, and does not wait
// otherwise.
func TestUpcastingYieldsToExecutors(t *testing.T) {
	w := newUpcastWorld(t)
	beside := func(busy loadFunc) { w.seats = newSeats(1, 1, busy) }
	took := func(t *testing.T, entityType string, events int, busy bool) time.Duration {
		beside(func() bool { return busy })
		began := time.Now()
		for range events {
			if _, err := w.read(t.Context(), entityType, "placed"); err != nil {
				t.Fatal(err)
			}
		}
		return time.Since(began)
	}
	synctest.Test(t, func(t *testing.T) {
		for _, entityType := range []string{"order", "dear"} {
			if d := took(t, entityType, 2, false); d != 0 {
				t.Errorf("events of %s take %v beside idle lanes", entityType, d)
			}
		}
		if d := took(t, "order", 3*piece, true); d < 3*yieldMost || d > 4*yieldMost {
			t.Errorf("3 pieces of cheap events take %v beside busy lanes", d)
		}
		if d := took(t, "dear", 3, true); d < 2*yieldMost || d > 2*mostOfEvent/piece*yieldMost+yieldMost {
			t.Errorf("3 dear events take %v beside busy lanes", d)
		}
		beside(func() bool { return true })
		ctx, cancel := context.WithTimeout(t.Context(), yieldMost/2)
		defer cancel()
		for events := 0; ; events++ {
			_, err := w.read(ctx, "order", "placed")
			if errors.Is(err, context.DeadlineExceeded) {
				break
			}
			if err != nil || events == piece {
				t.Fatalf("after %d events, who waits for lanes gets %v", events, err)
			}
		}
	})
}

// TestUpcastingEndsWithItsCaller checks that a guest that is still running when
// its caller is gone is interrupted and not used again.
func TestUpcastingEndsWithItsCaller(t *testing.T) {
	w := newUpcastWorld(t)
	began := make(chan struct{}, 1)
	w.opening = func(context.Context) { began <- struct{}{} }
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ended := make(chan error, 1)
	go func() {
		_, err := w.read(ctx, "endless", "placed")
		ended <- err
	}()
	<-began
	leave()
	if err := <-ended; err != context.Canceled {
		t.Errorf("who has left gets %v", err)
	}
	if len(w.idle) != 0 || len(w.seats.types) != 0 {
		t.Error("the guest that was interrupted is used again")
	}
	w.opening = nil
	key := upcasterKey{w.ServedType("endless").Digest, "endless"}
	g, err := w.take(t.Context(), key, w.ServedType("endless"))
	if err != nil {
		t.Fatal(err)
	}
	defer g.guest.Close()
	about := w.about[key]
	if _, err := g.upcast(ctx, &about, "placed.v2", abi.AppendInputEvent(nil, 7, 1, "placed", nil)); !errors.Is(err, guest.ErrInterrupted) {
		t.Errorf("a guest whose caller has left ends with %v", err)
	}
}
