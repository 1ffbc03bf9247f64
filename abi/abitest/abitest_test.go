package abitest

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	hostd "github.com/hostd/hostd/guest-sdk/go"
)

type (
	cart struct {
		Items map[string]int64 `json:"items"`
		Last  string           `json:"last"`
		Cache int64            `json:"-"`
	}
	put struct {
		Item  string `json:"name"`
		Count int64  `json:"count"`
	}
	wasPut  put
	cleared struct{}
	size    struct{ Size int }
)

// faults are the ways in which the cart guest can be broken for a test.
type faults struct {
	silentChange, queryChanges, rejectChanges, seedInState, clockInState, shared, traps, losesState, initialDiffers, sendsAside bool
	seed                                                                                                                        uint64
}

func cartGuest(f faults) *hostd.Guest {
	c := hostd.Entity[cart]("cart", hostd.JSON, hostd.Sends("shelf"))
	sharedItems := map[string]int64{}
	c.Initial(func() cart {
		state := cart{Items: map[string]int64{}}
		if f.shared {
			state.Items = sharedItems
		}
		if f.initialDiffers && f.seed%2 == 1 {
			state.Last = "odd"
		}
		return state
	})
	hostd.Event(c, "put", func(s *cart, e wasPut) {
		s.Items[e.Item] += e.Count
		s.Last = e.Item
		s.Cache += e.Count
		if f.seedInState {
			s.Last += string(rune('a' + f.seed%26))
		}
		if f.losesState {
			s.Last = string(rune('a' + s.Cache%26)) // a field that snapshots do not include
		}
	})
	hostd.Event(c, "cleared", func(s *cart, _ cleared) { *s = cart{Items: map[string]int64{}} })
	hostd.Command(c, "put", func(c *hostd.Context, s *cart, cmd put) (size, error) {
		if f.traps && cmd.Item == "" {
			panic("no item")
		}
		if cmd.Count <= 0 {
			if f.rejectChanges {
				s.Last = "rejected"
			}
			return size{}, hostd.Reject("invalid_count", "the count must be above 0")
		}
		if f.silentChange {
			s.Last = c.CommandID()
			return size{}, nil
		}
		c.Emit(wasPut(cmd), "cart")
		c.Send("shelf", "s", "taken", nil)
		if f.sendsAside {
			c.Send("aside", "a", "taken", nil)
		}
		if cmd.Count > 7 {
			return size{}, hostd.Reject("too_many", "rejected after emitting")
		}
		if f.clockInState {
			s.Last = "now"
		}
		return size{len(s.Items)}, nil
	})
	hostd.Command(c, "clear", func(c *hostd.Context, _ *cart, _ hostd.None) (hostd.None, error) {
		c.Emit(cleared{})
		if c.Random()%4 == 0 {
			c.Delete()
		}
		return hostd.None{}, nil
	})
	hostd.Query(c, "size", func(_ *hostd.View, s *cart, _ hostd.None) (size, error) {
		if f.queryChanges {
			s.Last = "asked"
		}
		return size{len(s.Items)}, nil
	})
	return hostd.NewGuest("cart", "1.0.0", c, note())
}

// note is a durable-state type whose payloads are opaque.
func note() *hostd.Type[[]byte] {
	n := hostd.Durable[[]byte]("note", hostd.Bytes)
	hostd.Command(n, "write", func(_ *hostd.Context, s *[]byte, text []byte) (string, error) {
		*s = append(*s, text...)
		if len(*s) > 500 {
			return "", hostd.Reject("full", "the note is full")
		}
		return string(text), nil
	})
	hostd.Query(n, "read", func(_ *hostd.View, s *[]byte, _ hostd.None) ([]byte, error) { return *s, nil })
	return n
}

func guest(f faults) native {
	return func(seed uint64) *hostd.Guest {
		f.seed = seed
		return cartGuest(f)
	}
}

var samples = Samples{"cart": {"put": {[]byte(`{"name":"a","count":1}`), []byte(`{"name":"b","count":3}`), []byte(`{"name":"c","count":9}`)}}}

func run(t *testing.T, module Opener, options Options) *Report {
	t.Helper()
	report, err := Run(t.Context(), module, options)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestCorrectGuestPasses(t *testing.T) {
	for seed := range uint64(20) {
		report := run(t, guest(faults{}), Options{Seed: seed, Samples: samples})
		if !report.OK() {
			t.Fatalf("seed %d\n%s", seed, report)
		}
		for _, c := range report.Checks {
			if c.Status != Passed {
				t.Errorf("seed %d: %+v", seed, c)
			}
		}
	}
}

func TestCorrectGuestPassesWithGuessedPayloads(t *testing.T) {
	if report := run(t, guest(faults{}), Options{Seed: 1}); !report.OK() {
		t.Errorf("\n%s", report)
	}
}

func TestReportDependsOnlyOnSeed(t *testing.T) {
	broken := guest(faults{rejectChanges: true})
	first, second := run(t, broken, Options{Seed: 5}), run(t, broken, Options{Seed: 5})
	if first.OK() || !reflect.DeepEqual(first.Checks, second.Checks) {
		t.Errorf("\n%s\n%s", first, second)
	}
}

// TestEveryFaultFailsItsCheck breaks a guest in one way after another, and checks
// that the named check fails.
func TestEveryFaultFailsItsCheck(t *testing.T) {
	sound := guest(faults{})
	wrap := func(bend func(Instance) Instance) Opener { return bent{sound, bend} }
	for name, c := range map[string]struct {
		module Opener
		check  string
	}{
		"a command changes state without an event":   {guest(faults{silentChange: true}), "cart/handle"},
		"a rejected command changes state":           {guest(faults{rejectChanges: true}), "cart/handle"},
		"a command changes state beside its event":   {guest(faults{clockInState: true}), "cart/handle"},
		"a command sends to a type it does not name": {guest(faults{sendsAside: true}), "cart/handle"},
		"a command traps":                            {guest(faults{traps: true}), "cart/handle"},
		"entities share state":                       {guest(faults{shared: true}), "cart/handle"},
		"evolving depends on the instance":           {guest(faults{seedInState: true}), "cart/replay"},
		"the initial state depends on it":            {guest(faults{initialDiffers: true}), "cart/load"},
		"a snapshot leaves state out":                {guest(faults{losesState: true}), "cart/snapshot"},
		"a query changes state":                      {guest(faults{queryChanges: true}), "cart/query"},
		"drop does nothing":                          {wrap(func(g Instance) Instance { return keeper{g, map[uint64]bool{}} }), "note/handles"},
		"unknown kinds are not skipped":              {wrap(func(g Instance) Instance { return strict{g} }), "cart/unknown-kinds"},
		"a bad snapshot traps":                       {wrap(func(g Instance) Instance { return brittle{g} }), "cart/unreadable-snapshot"},
		"the buffer is too small":                    {wrap(func(g Instance) Instance { return small{g} }), "cart/large-input"},
		"an event the manifest does not list":        {wrap(func(g Instance) Instance { return emitter{g, abi.AppendEvent(nil, "surprise", nil)} }), "cart/handle"},
		"output that is no frames":                   {wrap(func(g Instance) Instance { return emitter{g, []byte{1, 2, 3}} }), "cart/handle"},
		"output over a limit":                        {wrap(func(g Instance) Instance { return emitter{g, abi.AppendEvent(nil, "put", make([]byte, 64<<10+1))} }), "cart/handle"},
		"a durable state that is not the state":      {wrap(func(g Instance) Instance { return emitter{g, abi.AppendState(nil, []byte("other"))} }), "note/handle"},
		"a manifest that is none":                    {describes(`{"abi":1}`), "describe"},
		"a manifest of another version":              {describes(`{"abi":2,"name":"x","entityTypes":[]}`), "describe"},
	} {
		t.Run(name, func(t *testing.T) {
			report := run(t, c.module, Options{Seed: 3, Samples: samples})
			if report.OK() || !strings.Contains(report.String(), "failed  "+c.check+":") {
				t.Errorf("want %s to fail\n%s", c.check, report)
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, guest(faults{}), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestChecksWithoutEffectsAreSkipped(t *testing.T) {
	idle := native(func(uint64) *hostd.Guest {
		e := hostd.Entity[struct{}]("idle", hostd.JSON)
		hostd.Command(e, "never", func(*hostd.Context, *struct{}, hostd.None) (hostd.None, error) {
			return hostd.None{}, hostd.Reject("no", "never")
		})
		return hostd.NewGuest("idle", "", e)
	})
	if text := run(t, idle, Options{}).String(); !strings.Contains(text, "skipped idle/replay: no command stored anything") {
		t.Errorf("\n%s", text)
	}
}

type describes string

func (d describes) Describe() ([]byte, error) { return []byte(d), nil }
func (describes) Open(context.Context, uint64) (Instance, error) {
	return nil, errors.New("not to be opened")
}

// keeper is an instance that ignores drop, and keeps the old state on the next
// load.
type keeper struct {
	Instance
	loaded map[uint64]bool
}

func (k keeper) Drop(uint64) error { return nil }
func (k keeper) Load(typ uint32, handle uint64, frames []byte) (abi.LoadStatus, error) {
	if k.loaded[handle] && !bytes.Contains(frames, []byte("damaged")) {
		return abi.LoadDone, nil
	}
	status, err := k.Instance.Load(typ, handle, frames)
	k.loaded[handle] = status == abi.LoadDone
	return status, err
}

var errTrap = errors.New("trap")

// strict is an instance that faults on unknown input kinds.
type strict struct{ Instance }

func (s strict) Apply(handle uint64, frames []byte) error {
	if bytes.Contains(frames, []byte("of a later version")) {
		return errTrap
	}
	return s.Instance.Apply(handle, frames)
}

// brittle is an instance that traps on a snapshot that it cannot read.
type brittle struct{ Instance }

func (b brittle) Load(typ uint32, handle uint64, frames []byte) (abi.LoadStatus, error) {
	status, err := b.Instance.Load(typ, handle, frames)
	if status == abi.LoadUnreadable {
		return 0, errTrap
	}
	return status, err
}

// small is an instance whose buffer has exactly 1 MiB.
type small struct{ Instance }

func (s small) Load(typ uint32, handle uint64, frames []byte) (abi.LoadStatus, error) {
	if len(frames) > 1<<20 {
		return 0, errTrap
	}
	return s.Instance.Load(typ, handle, frames)
}

// emitter is an instance that appends bytes to the output of commands.
type emitter struct {
	Instance
	more []byte
}

func (e emitter) Handle(handle uint64, frames []byte, env Env) ([]byte, error) {
	out, err := e.Instance.Handle(handle, frames, env)
	return append(bytes.Clone(out), e.more...), err
}

// TestPayloadsAreSampledFromSchemas checks that a command whose payload nobody would
// guess is tested if it has a schema.
func TestPayloadsAreSampledFromSchemas(t *testing.T) {
	type quux struct {
		Zorp string `json:"zorp" hostd:"required,enum=blue|green"`
	}
	module := func(options ...hostd.Option) native {
		return func(uint64) *hostd.Guest {
			odd := hostd.Entity[quux]("odd", hostd.JSON, options...)
			hostd.Event(odd, "set", func(s *quux, e quux) { *s = e })
			hostd.Command(odd, "set", func(c *hostd.Context, _ *quux, cmd quux) (hostd.None, error) {
				if cmd.Zorp != "blue" && cmd.Zorp != "green" {
					return hostd.None{}, hostd.Reject("colour", "is no colour")
				}
				c.Emit(cmd)
				return hostd.None{}, nil
			})
			return hostd.NewGuest("odd", "1.0.0", odd)
		}
	}
	skipped := func(m native) (n int) {
		for _, c := range run(t, m, Options{Seed: 1}).Checks {
			if c.Status == Failed {
				t.Errorf("%+v", c)
			}
			if c.Status == Skipped {
				n++
			}
		}
		return n
	}
	if with, without := skipped(module()), skipped(module(hostd.NoSchemas())); with >= without {
		t.Errorf("%d checks are skipped with schemas, %d without", with, without)
	}
}

type (
	memo1 struct {
		Text string `json:"text"`
	}
	memo struct {
		Text  string `json:"text"`
		Bytes int    `json:"bytes"`
		By    uint64 `json:"by"`
	}
)

// TestEarlierStateVersionsAreChecked checks that states of the versions in a manifest
// are loaded, and that two instances migrate them in the same way.
func TestEarlierStateVersionsAreChecked(t *testing.T) {
	guest := func(by func(seed uint64) uint64) native {
		return func(seed uint64) *hostd.Guest {
			m := hostd.Durable[memo]("memo", hostd.JSON)
			hostd.MigrateState(m, 1, func(old memo1) memo { return memo{old.Text, len(old.Text), by(seed)} })
			hostd.Command(m, "write", func(_ *hostd.Context, s *memo, text memo1) (hostd.None, error) {
				s.Text, s.Bytes = text.Text, len(text.Text)
				return hostd.None{}, nil
			})
			return hostd.NewGuest("memo", "1.0.0", m)
		}
	}
	report := run(t, guest(func(uint64) uint64 { return 0 }), Options{Seed: 1})
	if !report.OK() || !strings.Contains(report.String(), "memo/earlier-states") {
		t.Errorf("a migration that is sound:\n%s", report)
	}
	for _, c := range report.Checks {
		if strings.Contains(c.Name, "earlier-states") && c.Status != Passed {
			t.Errorf("%+v", c)
		}
	}
	report = run(t, guest(func(seed uint64) uint64 { return seed }), Options{Seed: 1})
	if report.OK() || !strings.Contains(report.String(), "failed  memo/earlier-states:") {
		t.Errorf("a migration that depends on the instance:\n%s", report)
	}
}

type (
	poured1 struct {
		Cups int `json:"cups"`
	}
	poured struct {
		Litres int `json:"litres"`
	}
	pot struct {
		Litres int `json:"litres"`
	}
)

// deaf is an instance that upcasts events for readers to the wrong event.
type deaf struct{ Instance }

func (d deaf) Upcasts() bool { return true }

func (d deaf) Upcast(typ uint32, frame []byte) ([]byte, error) {
	return abi.AppendEvent(nil, "poured.v2", []byte(`{"litres":1000}`)), nil
}

// none is an instance that upcasts no events for readers.
type none struct{ Instance }

// TestReaderUpcastsAreChecked checks that readers get an older event as the
// module itself reads it.
func TestReaderUpcastsAreChecked(t *testing.T) {
	sound := native(func(uint64) *hostd.Guest {
		p := hostd.Entity[pot]("pot", hostd.JSON)
		hostd.Upcast(p, "poured", 1, func(old poured1) poured { return poured{old.Cups / 4} })
		hostd.Event(p, "poured", func(s *pot, e poured) { s.Litres += e.Litres })
		hostd.Command(p, "pour", func(c *hostd.Context, _ *pot, cmd poured) (hostd.None, error) {
			c.Emit(cmd)
			return hostd.None{}, nil
		})
		return hostd.NewGuest("pot", "1.0.0", p)
	})
	status := func(o Opener) (Status, *Report) {
		report := run(t, o, Options{Seed: 1})
		for _, c := range report.Checks {
			if c.Name == "upcast" {
				return c.Status, report
			}
		}
		t.Fatalf("it is not checked:\n%s", report)
		return "", nil
	}
	if got, report := status(sound); got != Passed || !report.OK() {
		t.Errorf("a sound guest: %s\n%s", got, report)
	}
	if got, report := status(bent{sound, func(g Instance) Instance { return deaf{g} }}); got != Failed {
		t.Errorf("another event: %s\n%s", got, report)
	}
	if got, report := status(bent{sound, func(g Instance) Instance { return none{g} }}); got != Skipped || !report.OK() {
		t.Errorf("nothing for readers: %s\n%s", got, report)
	}
}
