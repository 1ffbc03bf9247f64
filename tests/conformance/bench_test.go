package conformance

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/tests/support/guests"
	"github.com/hostd/hostd/tests/support/testkit"
)

// request builds the input of a command in the same way as a node.
func request(sequence uint64, command, payload string) []byte {
	input := abi.AppendSequence(nil, sequence)
	input = abi.AppendName(input, command)
	input = abi.AppendPayload(input, []byte(payload))
	input = abi.AppendCommandID(input, "3f2a9c4e-0000-4000-8000-000000000000")
	input = abi.AppendNow(input, 1_700_000_000_000_000_000)
	input = abi.AppendSeed(input, 42)
	return abi.AppendSource(input, abi.Source{Kind: abi.SourceClient})
}

// benchmarkGuest returns an instance of an example with entity 0 loaded.
func benchmarkGuest(b *testing.B, name string) *guest.Instance {
	b.Helper()
	m := guests.Compile(b, testkit.BuildExample(b, name), nil)
	g, err := m.Instantiate(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := g.Close(); err != nil {
			b.Errorf("close instance: %v", err)
		}
	})
	if status, err := g.Load(0, 0, abi.AppendEntityID(nil, "e")); err != nil || status != abi.LoadDone {
		b.Fatal(status, err)
	}
	return g
}

// BenchmarkGuestHandle measures a whole command inside Wasm: reading frames,
// decoding the payload, encoding the event, reading it back, applying it, and
// encoding the reply.
func BenchmarkGuestHandle(b *testing.B) {
	for _, c := range []struct{ guest, command, payload string }{
		{"counter", "add", `{"amount":3}`},
		{"account", "deposit", `{"amount":3}`},
		{"account", "withdraw", `{"amount":3}`},
		{"chain", "link", `{"n":3}`},
		{"counter-ts", "add", `{"amount":3}`},
	} {
		b.Run(c.guest+"/"+c.command, func(b *testing.B) {
			g := benchmarkGuest(b, c.guest)
			input := request(1, c.command, c.payload)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Handle(0, input, guest.Env{Now: 1, Seed: 2}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkGuestApply measures the replay of one event, in batches of 64.
func BenchmarkGuestApply(b *testing.B) {
	g := benchmarkGuest(b, "counter")
	const batch = 64
	var input []byte
	for i := range uint64(batch) {
		input = abi.AppendInputEvent(input, i+1, 0, "added", []byte(`{"amount":3}`))
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := g.Apply(0, input); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/event")
}

// BenchmarkGuestQuery measures a query on a small state.
func BenchmarkGuestQuery(b *testing.B) {
	g := benchmarkGuest(b, "counter")
	input := request(1, "total", "")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Query(0, input, guest.Env{Now: 1, Seed: 2}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGuestEntities measures the memory that additional small entities
// take in an instance.
func BenchmarkGuestEntities(b *testing.B) {
	const entities = 10_000
	for _, name := range []string{"counter", "counter-ts"} {
		b.Run(name, func(b *testing.B) {
			var bytes int64
			for b.Loop() {
				g := benchmarkGuest(b, name)
				input := request(1, "add", `{"amount":3}`)
				before := g.MemoryBytes()
				for i := range uint64(2 * entities) {
					if i == entities {
						before = g.MemoryBytes()
					}
					if status, err := g.Load(0, i, abi.AppendEntityID(nil, fmt.Sprint("entity-", i))); err != nil || status != abi.LoadDone {
						b.Fatal(status, err)
					}
					if _, err := g.Handle(i, input, guest.Env{Now: 1, Seed: 2}); err != nil {
						b.Fatal(err)
					}
				}
				bytes += g.MemoryBytes() - before
			}
			b.ReportMetric(float64(bytes)/float64(b.N)/entities, "B/entity")
		})
	}
}

// BenchmarkGuestInstantiate measures the cost of another instance for an
// executor.
func BenchmarkGuestInstantiate(b *testing.B) {
	m := benchmarkGuest(b, "counter").Module()
	for b.Loop() {
		g, err := m.Instantiate(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGuestInstances measures the thread time and the private memory of
// another instance. The instance either starts from the image of the first
// instance or runs _initialize, and is measured idle and after a command.
func BenchmarkGuestInstances(b *testing.B) {
	for _, name := range []string{"counter", "counter-ts"} {
		b.Run(name, func(b *testing.B) { benchmarkInstances(b, guests.Compile(b, testkit.BuildExample(b, name), nil)) })
	}
}

func benchmarkInstances(b *testing.B, m *guest.Module) {
	const instances = 200
	begin, input := abi.AppendEntityID(nil, "e"), request(1, "add", `{"amount":3}`)
	for name, open := range map[string]func(context.Context) (*guest.Instance, error){
		"image": m.Instantiate,
		"initialize": func(ctx context.Context) (*guest.Instance, error) {
			return m.InstantiateVaried(ctx, 1_700_000_000_000_000_000, 7)
		},
	} {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var opening time.Duration
			var idle, used int
			for b.Loop() {
				before := privateKB(b)
				var guests []*guest.Instance
				began := threadTime(b)
				for range instances {
					g, err := open(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					guests = append(guests, g)
				}
				opening += threadTime(b) - began
				idle += privateKB(b) - before
				for _, g := range guests {
					if status, err := g.Load(0, 0, begin); err != nil || status != abi.LoadDone {
						b.Fatal(status, err)
					}
					if _, err := g.Handle(0, input, guest.Env{Now: 1, Seed: 2}); err != nil {
						b.Fatal(err)
					}
				}
				used += privateKB(b) - before
				for _, g := range guests {
					if err := g.Close(); err != nil {
						b.Fatal(err)
					}
				}
			}
			n := float64(b.N * instances)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(opening.Microseconds())/n, "us-open")
			b.ReportMetric(float64(idle)/n, "KB-idle")
			b.ReportMetric(float64(used)/n, "KB-used")
		})
	}
}

// privateKB returns the private memory of the process in KiB.
func privateKB(b *testing.B) (kb int) {
	runtime.GC()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skipf("no figures of memory here: %v", err)
	}
	_, line, _ := bytes.Cut(status, []byte("RssAnon:"))
	if _, err := fmt.Sscan(string(line), &kb); err != nil {
		b.Fatal(err)
	}
	return kb
}
