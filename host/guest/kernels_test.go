package guest

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// kernels builds testdata/kernels with the compiler of a language.
func kernels(t testing.TB, language string) []byte {
	t.Helper()
	const dir = "host/guest/testdata/kernels/"
	if language == "go" {
		return testkit.BuildGuest(t, dir+"go")
	}
	return testkit.BuildSource(t, dir+map[string]string{"c": "kernels.c", "rust": "kernels.rs", "assemblyscript": "kernels.ts"}[language])
}

var kernelLanguages = []string{"c", "rust", "assemblyscript", "go"}

var kernelNames = []string{"spin", "sum", "fib", "sieve", "machine"}

// kernel is a module with kernels, unmodified or metered.
type kernel struct {
	guest    api.Module
	instance *Instance
	meter    *account // nil if the module is unmodified
	ctx      context.Context
}

func openKernel(t testing.TB, e *Engine, wasm []byte, metered bool) *kernel {
	t.Helper()
	if metered {
		m, fault := parse(wasm, e.limits)
		if fault != nil {
			t.Fatal(fault)
		}
		wasm = m.Prepare()
	}
	compiled, err := e.runtime.CompileModule(t.Context(), wasm)
	if err != nil {
		t.Fatal(err)
	}
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	guest, err := e.runtime.InstantiateModule(t.Context(), compiled, config)
	if err != nil {
		t.Fatal(err)
	}
	instance := &Instance{module: &Module{engine: e}, guest: guest, pureClock: fixedInstant,
		meter: account{fuel: &counterOf{}, stack: &counterOf{}}}
	k := &kernel{guest: guest, instance: instance, ctx: &callContext{context.Background(), instance}}
	instance.begin()
	if metered {
		if err := instance.meter.attach(guest); err != nil {
			t.Fatal(err)
		}
		k.meter = &instance.meter
	}
	t.Cleanup(func() {
		guest.Close(context.Background())
		compiled.Close(context.Background())
	})
	if guest.ExportedFunction(abi.ExportInitialize) != nil {
		k.run(t, abi.ExportInitialize)
	}
	return k
}

// run calls a function and returns its result and its fuel.
func (k *kernel) run(t testing.TB, name string, params ...uint64) (result uint64, fuel int64) {
	t.Helper()
	if k.meter != nil {
		k.meter.open(math.MaxInt64)
	}
	stack := make([]uint64, 8)
	copy(stack, params)
	defer k.instance.endTurn()
	if err := k.guest.ExportedFunction(name).CallWithStack(k.ctx, stack); err != nil {
		t.Fatal(err)
	}
	if k.meter != nil {
		k.meter.close()
		fuel = k.meter.used
	}
	return uint64(uint32(stack[0])), fuel
}

// shifted inserts some code that never runs into the first function, so that
// all other functions move. The position of a short loop within a cache line
// decides up to a third of its time.
func shifted(code []byte, by int) []byte {
	filling := cat(op(opMemorySize, []byte{0}), op(opI32Eqz), op(opIf, []byte{blockVoid}))
	for i := range int32(by) {
		filling = cat(filling, i32c(i), i32c(i), op(0x3a, aligned(0))) // i32.store8
	}
	filling = append(filling, opEnd)
	out := bytes.Clone(code[:8])
	for c := cursorAt(code, 8); c.Remaining() > 0; {
		id := c.Byte("an id")
		size := c.U32("a size")
		end := c.Pos + int(size)
		payload := code[c.Pos:end]
		if id == sectionCode {
			payload = uleb(uint64(c.U32("bodies")))
			for first := true; c.Pos < end; first = false {
				size := int(c.U32("a size"))
				body := code[c.Pos : c.Pos+size]
				if c.Pos += size; first {
					locals := wasm.NewCursor(body)
					for range locals.U32("groups") {
						locals.U32("a number")
						locals.Byte("a type")
					}
					body = cat(body[:locals.Pos], filling, body[locals.Pos:])
				}
				payload = cat(payload, uleb(uint64(len(body))), body)
			}
		}
		c.Pos = end
		out = append(out, asmSection(id, payload)...)
	}
	return out
}

// shifts is the number of positions at which each kernel is measured.
const shifts = 9

// BenchmarkKernels measures the cost of metering. It alternates unmodified and
// metered runs of each tight loop, at several positions in the code. At each
// position it takes the fastest run of both kinds, and then it compares the
// medians over the positions. It also reports the nanoseconds per unit of fuel.
// At its end it prints the ratios as a table.
func BenchmarkKernels(b *testing.B) {
	table := "metered over plain"
	for _, name := range kernelNames {
		table += fmt.Sprintf("%9s", name)
	}
	for _, language := range kernelLanguages {
		row := make(map[string]float64)
		b.Run(language, func(b *testing.B) {
			wasm := kernels(b, language)
			e := newEngine(b, Options{})
			var pairs [][2]*kernel
			for by := range shifts {
				moved := shifted(wasm, by)
				pairs = append(pairs, [2]*kernel{openKernel(b, e, moved, false), openKernel(b, e, moved, true)})
			}
			for _, name := range kernelNames {
				if pairs[0][0].guest.ExportedFunction(name) == nil {
					continue
				}
				b.Run(name, func(b *testing.B) { row[name] = compareKernels(b, pairs, name) })
			}
		})
		table += fmt.Sprintf("\n%18s", language)
		for _, name := range kernelNames {
			if ratio, measured := row[name]; measured {
				table += fmt.Sprintf("%9.2f", ratio)
			} else {
				table += fmt.Sprintf("%9s", "-")
			}
		}
	}
	fmt.Println(table)
}

func compareKernels(b *testing.B, pairs [][2]*kernel, name string) (ratio float64) {
	const n = 100_000
	var least [2][shifts]time.Duration
	fuel := int64(0)
	for b.Loop() {
		for at, pair := range pairs {
			for i, k := range pair {
				began := time.Now()
				_, fuel = k.run(b, name, n)
				if took := time.Since(began); least[i][at] == 0 || took < least[i][at] {
					least[i][at] = took
				}
			}
		}
	}
	for i := range least {
		slices.Sort(least[i][:])
	}
	plain, metered := least[0][shifts/2], least[1][shifts/2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(plain)/1e3, "us-plain")
	b.ReportMetric(float64(metered)/1e3, "us-metered")
	b.ReportMetric(float64(metered)/float64(plain), "x")
	b.ReportMetric(float64(least[1][0])/float64(least[0][0]), "x-least")
	b.ReportMetric(float64(metered)/float64(fuel), "ns/unit")
	return float64(metered) / float64(plain)
}
