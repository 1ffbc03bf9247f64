package guest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// counterOf replaces the counters of a module that is not metered.
type counterOf struct {
	api.MutableGlobal
	value uint64
}

func (c *counterOf) Get() uint64  { return c.value }
func (c *counterOf) Set(v uint64) { c.value = v }

// asItCame returns an instance of an unmodified module.
func asItCame(t testing.TB, e *Engine, wasm []byte) *Instance {
	t.Helper()
	compiled, err := e.runtime.CompileModule(t.Context(), wasm)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { compiled.Close(context.Background()) })
	return plainInstance(t, e, compiled)
}

// plainInstance returns an instance of code that is not metered.
func plainInstance(t testing.TB, e *Engine, compiled wazero.CompiledModule) *Instance {
	t.Helper()
	memory := &linearMemory{budget: new(memoryBudget)} // the sizes of buffers are checked against the length of this memory
	starting := experimental.WithMemoryAllocator(t.Context(), memory)
	guest, err := e.runtime.InstantiateModule(starting, compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		memory.Free()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		guest.Close(context.Background())
		memory.Free()
	})
	g := &Instance{module: &Module{engine: e}, guest: guest, memory: memory, pureClock: fixedInstant, pureSeed: fixedSeed,
		log: guestLog{logger: e.logger}, meter: account{fuel: &counterOf{}, stack: &counterOf{}}}
	g.ctx = &callContext{context.Background(), g}
	g.SetBudgets(Budgets{})
	g.begin()
	if initialize := guest.ExportedFunction(abi.ExportInitialize); initialize != nil {
		if err := g.run(abi.ExportInitialize, initialize, unlimited); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// outcomes runs random commands, queries, loads and snapshots on a few entities
// and returns all answers of the guest.
func outcomes(t testing.TB, g *Instance, seed uint64, commands int) (all [][]byte, fuel int64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	keep := func(out []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bytes.Clone(out))
		fuel += g.Fuel()
		return out
	}
	const entities = 8
	load := func(handle uint64, state []byte) {
		frames := abi.AppendEntityID(nil, fmt.Sprint("e", handle))
		if state != nil {
			frames = abi.AppendSnapshot(frames, state)
		}
		status, err := g.Load(0, handle, frames)
		keep([]byte{byte(status)}, err)
	}
	for handle := range uint64(entities) {
		load(handle, nil)
	}
	for range commands {
		handle := random.Uint64N(entities)
		input := abi.AppendSequence(nil, random.Uint64N(1000))
		env := Env{Now: int64(random.Uint64() >> 2), Seed: random.Uint64()}
		switch random.IntN(10) {
		case 0:
			state := bytes.Clone(keep(g.Snapshot(handle)))
			keep(nil, g.Drop(handle))
			load(handle, state)
		case 1:
			event := abi.AppendInputEvent(nil, 1, 2, "added", fmt.Appendf(nil, `{"amount":%d}`, int32(random.Uint32())))
			keep(nil, g.Apply(handle, event))
		case 2:
			keep(g.Query(handle, abi.AppendName(input, "total"), env))
		case 3:
			keep(g.Handle(handle, abi.AppendName(input, []string{"reset", "none"}[random.IntN(2)]), env))
		default:
			payload := fmt.Appendf(nil, `{"amount":%d}`, int64(random.Uint64())>>random.IntN(64))
			if random.IntN(8) == 0 {
				payload[random.IntN(len(payload))] = byte(random.Uint32())
			}
			keep(g.Handle(handle, abi.AppendPayload(abi.AppendName(input, "add"), payload), env))
		}
	}
	return all, fuel
}

// equalGuests are the guests whose metered and unmodified forms are compared:
// one that is assembled byte by byte, and guests in other languages and in Go.
var equalGuests = []string{"assembled", "counter-c", "counter-rust", "counter-as", "counter"}

func equalGuest(t testing.TB, name string) []byte {
	t.Helper()
	if name == "assembled" { // with a call in the query, and a loop over the bytes of a command
		guest := wideGuest()
		guest.bodies[abi.ExportQuery] = cat(i32c(1), call(11), op(opDrop), stateSpan())
		guest.bodies[abi.ExportHandle] = cat(addLength(), op(opLoop, []byte{blockVoid}),
			get(1), i32c(1), op(opI32Sub), op(opLocalTee, uleb(1)), op(opBrIf, uleb(0)), []byte{opEnd}, stateSpan())
		return guest.build()
	}
	if testing.Short() && name != "counter-c" {
		t.Skip("short: the counter in C stands for all")
	}
	return testkit.BuildExample(t, name)
}

// TestMeteringKeepsGuestResults runs 10,000 random commands on an unmodified
// guest and on the metered one, each compiled and interpreted. All answers
// must be equal, and the compiled and the interpreted metered guest must
// spend the same fuel. (An unmodified guest in Go is not interpreted.) The
// counters in C, Rust and AssemblyScript, which do the same, must give equal
// answers too.
func TestMeteringKeepsGuestResults(t *testing.T) {
	commands := 10_000
	if testing.Short() {
		commands = 500
	}
	const seed = 5
	var counters [][]byte
	for _, name := range equalGuests {
		t.Run(name, func(t *testing.T) {
			wasm := equalGuest(t, name)
			want, _ := outcomes(t, asItCame(t, newEngine(t, Options{}), wasm), seed, commands)
			compare := func(what string, want, got [][]byte) {
				t.Helper()
				for i := range want {
					if !bytes.Equal(want[i], got[i]) {
						t.Fatalf("%s: answer %d is %q, as it came %q", what, i, got[i], want[i])
					}
				}
			}
			if name != "counter" { // interpreting the unmodified Go guest would take seconds; the metered one is interpreted too
				interpreted, _ := outcomes(t, asItCame(t, newEngine(t, Options{Interpreter: true}), wasm), seed, commands)
				compare("interpreted", want, interpreted)
			}
			var spent []int64
			for _, opts := range []Options{{}, {Interpreter: true}, {}} {
				got, fuel := outcomes(t, instantiate(t, mustCompile(t, newEngine(t, opts), wasm)), seed, commands)
				compare(fmt.Sprintf("metered, interpreter %v", opts.Interpreter), want, got)
				spent = append(spent, fuel)
			}
			if spent[0] != spent[1] || spent[0] != spent[2] {
				t.Errorf("three instances spent %d", spent)
			}
			t.Logf("%d units a command", spent[0]/int64(commands))
			if strings.HasPrefix(name, "counter-") {
				if counters != nil {
					compare("held against another language", counters, want)
				}
				counters = want
			}
		})
	}
}

// TestMeteringKeepsKernelResults checks that the loops of each language give
// the same results with and without metering.
func TestMeteringKeepsKernelResults(t *testing.T) {
	for _, language := range kernelLanguages {
		t.Run(language, func(t *testing.T) {
			if testing.Short() && language == "go" {
				t.Skip("short: the counter stands for Go")
			}
			wasm := kernels(t, language)
			bothEngines(t, func(t *testing.T, opts Options) {
				e := newEngine(t, opts)
				plain, metered := openKernel(t, e, wasm, false), openKernel(t, e, wasm, true)
				for _, name := range kernelNames {
					for _, n := range []uint64{0, 1, 100, 4097, 20_000} {
						if plain.guest.ExportedFunction(name) == nil {
							continue
						}
						want, _ := plain.run(t, name, n)
						if got, _ := metered.run(t, name, n); got != want {
							t.Errorf("%s(%d) is %d as it came and %d metered", name, n, want, got)
						}
					}
				}
			})
		})
	}
}

// BenchmarkCommands measures the cost of metering for a command, alternating as
// BenchmarkKernels does, and for a call that does nothing.
func BenchmarkCommands(b *testing.B) {
	for _, name := range []string{"empty", "counter-c", "counter-rust", "counter-as", "counter"} {
		b.Run(name, func(b *testing.B) {
			wasm := (&testGuest{bodies: map[string][]byte{abi.ExportHandle: i64c(0)}}).build()
			if name != "empty" {
				wasm = testkit.BuildExample(b, name)
			}
			e := newEngine(b, Options{})
			guests := [2]*Instance{asItCame(b, e, wasm), instantiate(b, mustCompile(b, e, wasm))}
			input := abi.AppendPayload(abi.AppendName(abi.AppendSequence(nil, 1), "add"), []byte(`{"amount":3}`))
			least := [2]time.Duration{time.Hour, time.Hour}
			for _, g := range guests {
				if _, err := g.Load(0, 0, abi.AppendEntityID(nil, "e")); err != nil {
					b.Fatal(err)
				}
			}
			const calls = 200
			for b.Loop() {
				for i, g := range guests {
					began := time.Now()
					for range calls {
						if _, err := g.Handle(0, input, Env{Now: 1, Seed: 2}); err != nil {
							b.Fatal(err)
						}
					}
					least[i] = min(least[i], time.Since(began)/calls)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(least[0]), "ns-plain")
			b.ReportMetric(float64(least[1]), "ns-metered")
			b.ReportMetric(float64(least[1])/float64(least[0]), "x")
			b.ReportMetric(float64(guests[1].Fuel()), "units")
		})
	}
}
