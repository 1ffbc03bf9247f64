package conformance

import (
	"bytes"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest"
)

// TestFaultyGoGuest checks that any fault of a Go guest ends the call within
// the fuel of a few commands, and closes only the instance.
func TestFaultyGoGuest(t *testing.T) {
	var log bytes.Buffer
	module := compileWith(t, "tests/conformance/testdata/faulty", slog.New(slog.NewTextHandler(&log, nil)))
	goroutines := runtime.NumGoroutine()
	for _, test := range []struct {
		command string
		kinds   []guest.FaultKind // empty if the instance survives
		text    string
	}{
		{command: "count"},
		{command: "flood"},
		{command: "spin", kinds: []guest.FaultKind{guest.FaultFuel}},
		{command: "leave", kinds: []guest.FaultKind{guest.FaultFuel}},
		{command: "select", kinds: []guest.FaultKind{guest.FaultTrap}},
		{command: "recurse", kinds: []guest.FaultKind{guest.FaultStack, guest.FaultFuel, guest.FaultTrap}},
		{command: "allocate", kinds: []guest.FaultKind{guest.FaultTrap, guest.FaultFuel}},
		{command: "exit", kinds: []guest.FaultKind{guest.FaultTrap}, text: "exited with code 3"},
		{command: "panic", kinds: []guest.FaultKind{guest.FaultTrap}},
	} {
		t.Run(test.command, func(t *testing.T) {
			g := instantiate(t, module)
			// A goroutine that outlives its call runs in one of the next calls.
			var err error
			for range 3 {
				if _, err = g.Handle(0, request(0, test.command, ""), guest.Env{Now: 1, Seed: 2}); err != nil {
					break
				}
			}
			var fault *guest.Fault
			switch {
			case len(test.kinds) == 0 && err != nil:
				t.Fatal(err)
			case len(test.kinds) == 0:
			case !errors.As(err, &fault) || !slices.Contains(test.kinds, fault.Kind) || !strings.Contains(fault.Message, test.text):
				t.Fatalf("ended with %v, want one of %v", err, test.kinds)
			default:
				t.Logf("%v after %d units", fault, g.Fuel())
				if _, err := g.Snapshot(0); !errors.Is(err, guest.ErrInstanceDead) {
					t.Errorf("after the fault a snapshot gives %v", err)
				}
			}
		})
	}
	if n := strings.Count(log.String(), "nobody wants"); n == 0 || n > 3*abi.DefaultLimits().LogLines {
		t.Errorf("%d lines of the flood are in the log", n)
	}
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
	}
}

// instantiate returns an instance with entity 0 loaded.
func instantiate(t testing.TB, module *guest.Module) *guest.Instance {
	t.Helper()
	g, err := module.Instantiate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("close instance: %v", err)
		}
	})
	if status, err := g.Load(0, 0, abi.AppendEntityID(nil, "e")); err != nil || status != abi.LoadDone {
		t.Fatal(status, err)
	}
	return g
}
