package hostd_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	hostd "github.com/hostd/hostd/guest-sdk/go"
	"github.com/hostd/hostd/guest-sdk/go/hostdtest"
)

type (
	basket struct{ Items []item }
	item   struct {
		SKU   string `json:"sku"`
		Count int64  `json:"count"`
	}
	placeOf struct{ Items []item }
	placed1 struct{ SKU string }
	placed2 struct {
		SKU   string
		Count int64
	}
	placed3  struct{ Items []item }
	emptied  struct{}
	notThere struct{}
)

// baskets has an event with three versions, declared in any order.
func baskets(options ...hostd.Option) *hostd.Type[basket] {
	b := hostd.Entity[basket]("basket", hostd.JSON, options...)
	hostd.Upcast(b, "placed", 2, func(old placed2) placed3 { return placed3{[]item{{old.SKU, old.Count}}} })
	hostd.Event(b, "placed", func(s *basket, e placed3) { s.Items = append(s.Items, e.Items...) })
	hostd.Event(b, "emptied", func(s *basket, _ emptied) { s.Items = nil })
	hostd.Upcast(b, "placed", 1, func(old placed1) placed2 { return placed2{old.SKU, 1} })
	hostd.Command(b, "place", func(c *hostd.Context, _ *basket, cmd placeOf) (hostd.None, error) {
		c.Emit(placed3{cmd.Items})
		return hostd.None{}, nil
	})
	return b
}

// TestEventsAreUpcast checks that each version of a stored event is applied in
// its current form, and that emitted events have the newest version in their
// name.
func TestEventsAreUpcast(t *testing.T) {
	d := hostdtest.New(t, baskets()).Given(placed1{"a"}, placed2{"b", 2}, placed1{"c"}, placed3{[]item{{"d", 4}, {"e", 5}}})
	d.Then(basket{[]item{{"a", 1}, {"b", 2}, {"c", 1}, {"d", 4}, {"e", 5}}})
	d.When("place", placeOf{[]item{{"f", 6}}}).Events(placed3{[]item{{"f", 6}}})
	d.Given(emptied{}, placed1{"g"}).Then(basket{[]item{{"g", 1}}})
	typ := baskets()
	hostd.NewGuest("shop", "", typ)
	for want, value := range map[string]any{"placed": placed1{}, "placed.v2": placed2{}, "placed.v3": placed3{}, "emptied": emptied{}} {
		if name, _, err := typ.EncodeEvent(value); name != want || err != nil {
			t.Errorf("%T is stored as %q, want %q: %v", value, name, want, err)
		}
	}
	if _, _, err := typ.EncodeEvent(notThere{}); err == nil {
		t.Error("what is no event is encoded")
	}
}

// TestManifestOfUpcastEvents checks that the manifest lists all versions and
// their upcasts, no matter how often a module is created from the type.
func TestManifestOfUpcastEvents(t *testing.T) {
	typ := baskets()
	for range 2 {
		m, err := manifest.Parse(hostd.NewGuest("shop", "", typ).Describe())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range m.EntityTypes[0].Events {
			got = append(got, e.Type+">"+e.UpcastTo)
			if e.Schema == nil {
				t.Errorf("event %s has no schema", e.Type)
			}
		}
		if want := []string{"placed.v3>", "emptied>", "placed>placed.v3", "placed.v2>placed.v3"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	}
	if m, err := manifest.Parse(hostd.NewGuest("shop", "", baskets(hostd.NoSchemas())).Describe()); err != nil || m.EntityTypes[0].Events[2].Schema != nil {
		t.Errorf("%v: schemas in the manifest of a type without", err)
	}
}

// TestUpcastsMustReachCurrentVersion checks that declaring a type fails unless its
// upcasts lead from each declared version to the current event.
func TestUpcastsMustReachCurrentVersion(t *testing.T) {
	type T = hostd.Type[basket]
	placed := func(b *T) { hostd.Event(b, "placed", func(*basket, placed3) {}) }
	for says, declare := range map[string]func(b *T){
		"a version must be between 1 and 1000": func(b *T) { hostd.Upcast(b, "placed", 0, func(placed2) placed3 { return placed3{} }) },
		"version 2 is upcast twice": func(b *T) {
			hostd.Upcast(b, "placed", 2, func(placed2) placed3 { return placed3{} })
			hostd.Upcast(b, "placed", 2, func(placed2) placed3 { return placed3{} })
		},
		"version 1 must be upcast to the type of the next version": func(b *T) {
			placed(b)
			hostd.Upcast(b, "placed", 1, func(placed1) placed3 { return placed3{} })
			hostd.Upcast(b, "placed", 2, func(placed2) placed3 { return placed3{} })
		},
		"version 1 must be upcast to the type of the next": func(b *T) {
			placed(b)
			hostd.Upcast(b, "placed", 1, func(placed1) placed2 { return placed2{} })
			hostd.Upcast(b, "placed", 3, func(placed2) placed3 { return placed3{} })
		},
		"version 2 must be upcast to the event's current type": func(b *T) {
			placed(b)
			hostd.Upcast(b, "placed", 2, func(placed2) placed1 { return placed1{} })
		},
		"version 1 must be upcast to the event's current type": func(b *T) { hostd.Upcast(b, "placed", 1, func(placed2) placed3 { return placed3{} }) },
		"event type placed.v2 is declared twice": func(b *T) {
			placed(b)
			hostd.Event(b, "placed.v2", func(*basket, placed2) {})
			hostd.Upcast(b, "placed", 1, func(placed1) placed3 { return placed3{} })
		},
		"event type: 258 bytes, limit 255": func(b *T) {
			long := strings.Repeat("x", 255)
			hostd.Event(b, long, func(*basket, placed3) {})
			hostd.Upcast(b, long, 1, func(placed1) placed3 { return placed3{} })
		},
	} {
		b := hostd.Entity[basket]("basket", hostd.JSON)
		got := panicked(func() {
			declare(b)
			hostd.NewGuest("shop", "", b)
		})
		if !strings.Contains(got, says) {
			t.Errorf("panicked with %q, want %q", got, says)
		}
	}
	if got := panicked(func() {
		hostd.Upcast(hostd.Durable[basket]("basket", hostd.JSON), "placed", 1, func(placed1) placed2 { return placed2{} })
	}); !strings.Contains(got, "has no events") {
		t.Errorf("panicked with %q", got)
	}
}

func panicked(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text, _ = r.(string)
		}
	}()
	f()
	return ""
}

// TestReadersGetUpcastEvents checks that readers get each version of an event
// in its current form, and other events unchanged.
func TestReadersGetUpcastEvents(t *testing.T) {
	g := hostd.NewGuest("shop", "", baskets(), drafts())
	for _, tt := range []struct {
		typ                      int32
		stored, payload, is, now string
	}{
		{0, "placed", `{"SKU":"a"}`, "placed.v3", `{"Items":[{"sku":"a","count":1}]}`},
		{0, "placed.v2", `{"SKU":"b","Count":2}`, "placed.v3", `{"Items":[{"sku":"b","count":2}]}`},
		{0, "placed.v3", `{"Items":null}`, "placed.v3", `{"Items":null}`},
		{0, "emptied", `{}`, "emptied", `{}`},
		{0, "unheard", `x`, "unheard", `x`},
		{1, "state", `{"Text":"a b"}`, "state.v3", `{"Words":["a","b"],"Count":2}`},
		{1, "state.v2", `{"Words":["a"]}`, "state.v3", `{"Words":["a"],"Count":1}`},
		{1, "state.v3", `{"Words":["a"],"Count":1}`, "state.v3", `{"Words":["a"],"Count":1}`},
	} {
		answer := g.Upcast(tt.typ, abi.AppendInputEvent(nil, 1, 2, tt.stored, []byte(tt.payload)))
		if name, payload, err := abi.UpcastEvent(answer, 1000); err != nil || string(name) != tt.is || string(payload) != tt.now {
			t.Errorf("%s %s is given as %s %s, %v", tt.stored, tt.payload, name, payload, err)
		}
	}
	for says, call := range map[string]func(){
		"unknown entity type":               func() { g.Upcast(2, nil) },
		"upcast of event type placed":       func() { g.Upcast(0, abi.AppendInputEvent(nil, 1, 2, "placed", []byte("none"))) },
		"event type state: the state: cann": func() { g.Upcast(1, abi.AppendInputEvent(nil, 1, 2, "state", []byte("none"))) },
	} {
		if got := panicked(call); !strings.Contains(got, says) {
			t.Errorf("panicked with %q, want %q", got, says)
		}
	}
}
