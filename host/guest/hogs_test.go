package guest

import (
	"context"
	"errors"
	"math"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hostd/hostd/abi"
)

// hog is a guest that occupies a processor as long as it can, in a particular
// way. Its calls return, fault or never end.
type hog struct {
	name    string
	guest   *testGuest
	prepare func(*Instance) error // is called before the first call; may be nil
	call    func(*Instance) error // nil means a command
}

const (
	hogPages = 1000 // pages of memory
	hogLines = 1 << 19
	lineSize = 64
)

func misc(sub byte, operands ...byte) []byte { return cat([]byte{opMisc, sub}, operands) }

// forever repeats code endlessly.
func forever(code ...[]byte) []byte {
	return cat(op(opLoop, []byte{blockVoid}), cat(code...), op(opBr, uleb(0)), []byte{opEnd}, op(opUnreachable))
}

func times(n int, code []byte) []byte { return slices.Repeat(code, n) }

// strewn fills 32 MiB of memory with a list that visits the cache lines in
// pseudo-random order: each line holds the address of the next line, which is
// never adjacent. So a guest that follows the list waits for memory at each
// load. The guest runs strewn as an apply.
func strewn() []byte {
	return cat(op(opLoop, []byte{blockVoid}),
		get(1), i32c(lineSize), op(opI32Mul),
		get(1), i32c(1664525), op(opI32Mul), i32c(1013904223), op(opI32Add), i32c(hogLines-1), op(0x71), i32c(lineSize), op(opI32Mul),
		op(0x36, aligned(2)),
		get(1), i32c(1), op(opI32Add), op(opLocalTee, uleb(1)), i32c(hogLines), op(opI32LtU), op(opBrIf, uleb(0)), []byte{opEnd}, i32c(0))
}

func prepared(g *Instance) error { return g.Apply(0, nil) }

// follow follows n lines of the list, beginning with the line whose address
// global 0 holds.
func follow(n int) []byte {
	return cat(op(0x23, uleb(0)), times(n, op(opI32Load, aligned(2))), op(0x24, uleb(0)))
}

// strewnHog is a hog with strewn memory and two globals. Its first helper is
// function 9.
func strewnHog(name string, handle []byte, helpers ...[]byte) hog {
	global := cat([]byte{typeI32, 1}, i32c(0), []byte{opEnd})
	guest := &testGuest{memory: memoryBounds(hogPages, hogPages), globals: [][]byte{global, global},
		bodies: map[string][]byte{abi.ExportApply: strewn(), abi.ExportHandle: handle}}
	for i, code := range helpers {
		guest.helpers = append(guest.helpers, helper{code: code})
		guest.exports = append(guest.exports, cat(text("helper"+string(rune('0'+i))), []byte{kindFunction}, uleb(guest.helperIndex(i))))
	}
	return hog{name: name, guest: guest, prepare: prepared}
}

// hidden removes the helpers from the exports, so that metering may let their
// callers pay for them.
func (h hog) hidden() hog {
	h.guest.exports = nil
	return h
}

// recursion calls itself as deep as its stack allows. On the way back from each
// call it follows n lines of the list.
func recursion(name string, n int) hog {
	h := strewnHog(name, nil, cat(op(0x23, uleb(1)), op(opI32Eqz), op(opIf, []byte{blockVoid}), op(opReturn), []byte{opEnd},
		op(0x23, uleb(1)), i32c(1), op(opI32Sub), op(0x24, uleb(1)), call(9), follow(n)))
	frame := int64(0)
	if m, fault := parse(h.guest.build(), abi.DefaultLimits()); fault == nil {
		frame = m.Shape(9).FrameBytes
	}
	h.guest.bodies[abi.ExportHandle] = cat(i32c(int32(stackBytes/frame-2)), op(0x24, uleb(1)), call(9), i64c(0))
	return h
}

// recursionBetween is a recursion that executes code on the way back from each
// call. Its helpers are function 10 and the following ones.
func recursionBetween(name string, code []byte, helpers ...[]byte) hog {
	h := strewnHog(name, nil, append([][]byte{cat(op(0x23, uleb(1)), op(opI32Eqz), op(opIf, []byte{blockVoid}), op(opReturn), []byte{opEnd},
		op(0x23, uleb(1)), i32c(1), op(opI32Sub), op(0x24, uleb(1)), call(9), code)}, helpers...)...).hidden()
	frame := int64(0)
	if m, fault := parse(h.guest.build(), abi.DefaultLimits()); fault == nil {
		frame = m.Shape(9).FrameBytes
	}
	h.guest.bodies[abi.ExportHandle] = cat(i32c(int32(stackBytes/frame-2)), op(0x24, uleb(1)), call(9), i64c(0))
	return h
}

// tableHog is a hog with a table whose elements all refer to function fn. The
// number of the function is also that of its type.
func tableHog(h hog, elements int32, fn uint64) hog {
	h.guest.tables = [][]byte{tableOf(memoryBounds(uint64(elements), 1<<16))}
	h.guest.bodies[abi.ExportQuery] = cat(i32c(0), op(opRefFunc, uleb(fn)), i32c(elements), misc(miscTableFill, 0), i64c(0))
	before := h.prepare
	h.prepare = func(g *Instance) error {
		_, err := g.Query(0, nil, Env{})
		if err == nil && before != nil {
			err = before(g)
		}
		return err
	}
	return h
}

// hogs returns all hogs.
func hogs() []hog {
	handle := func(name string, code []byte) hog {
		return hog{name: name, guest: &testGuest{memory: memoryBounds(hogPages, 1024), bodies: map[string][]byte{abi.ExportHandle: code}}}
	}
	branches := cat(times(30_000, uleb(0)), times(30_000, uleb(1)), uleb(0))
	all := []hog{
		handle("loop", forever()),
		handle("loop-of-roots", forever(times(5000, cat(op(opF64Const, make([]byte, 8)), op(opF64Sqrt), op(opDrop))))),
		handle("switch", forever(op(opBlock, []byte{blockVoid}), op(opBlock, []byte{blockVoid}),
			get(1), i32c(40_503), op(opI32Mul), i32c(12_345), op(opI32Add), op(opLocalTee, uleb(1)), i32c(16), op(opI32ShrU),
			op(opBrTable, uleb(60_000), branches), []byte{opEnd}, []byte{opEnd})),
		handle("memory.fill", forever(i32c(0), i32c(7), i32c(62<<20), misc(miscMemoryFill, 0))),
		handle("memory.copy", forever(i32c(1), i32c(0), i32c(62<<20), misc(miscMemoryCopy, 0, 0))),
		touching(),
		growingHog(),
		strewnHog("waits-for-memory", forever(follow(20_000))),
		strewnHog("many-calls", cat(times(30_000, call(9)), i64c(0)), follow(60)),
		strewnHog("many-calls-of-small-ones", cat(times(30_000, call(9)), i64c(0)), follow(28)).hidden(),
		strewnHog("many-calls-that-return-early", cat(times(30_000, call(9)), i64c(0)),
			cat(follow(2000), i32c(1), op(opIf, []byte{blockVoid}), op(opReturn), []byte{opEnd}, call(10)), nil),
		recursion("recursion", 1), recursion("recursion-of-waits", 20), recursion("recursion-of-many-waits", 1000),
		recursionBetween("recursion-to-small-ones", times(120, call(10)), follow(28)),
		recursionBetween("recursion-to-a-switch", cat(op(opBlock, []byte{blockVoid}), i32c(0), op(opBrTable, uleb(6), times(7, uleb(0))), []byte{opEnd}, follow(2000))),
		{name: "recursion-without-end", guest: &testGuest{bodies: map[string][]byte{abi.ExportHandle: cat(call(9), i64c(0))}, helpers: []helper{{code: call(9)}}}},
		tableHog(strewnHog("many-calls-by-table", nil, follow(60)), 1<<16, 9),
		tableHog(handle("calls-by-table", forever(get(1), i32c(40_503), op(opI32Mul), i32c(12_345), op(opI32Add), op(opLocalTee, uleb(1)),
			i32c(16), op(opI32ShrU), op(opCallIndirect, uleb(0), uleb(0)), op(opDrop))), 1<<16, 0),
		tableHog(handle("table.fill", forever(i32c(0), op(opRefFunc, uleb(0)), i32c(1<<16), misc(miscTableFill, 0))), 1<<16, 0),
		tableHog(handle("table.copy", forever(i32c(1), i32c(0), i32c(1<<16-1), misc(miscTableCopy, 0, 0))), 1<<16, 0),
		tableHog(handle("table.grow", forever(op(opRefNull, []byte{typeFuncref}), i32c(1<<8), misc(miscTableGrow, 0), i32c(1), op(opI32Add),
			op(opIf, []byte{blockVoid}), op(0x05), op(opUnreachable), []byte{opEnd})), 1, 0),
	}
	for i := range all {
		if h := &all[i]; h.name == "many-calls-by-table" {
			direct := uint64(len(contract)) // the type of the first helper
			h.guest.bodies[abi.ExportHandle] = cat(times(10_000, cat(i32c(5), op(opCallIndirect, uleb(direct), uleb(0)))), i64c(0))
		}
	}
	return append(all, hostHogs()...)
}

// touching writes to a new page with each instruction.
func touching() hog {
	var code []byte
	for page := range 16 * hogPages {
		if page%5000 == 0 {
			code = cat(code, call(9+uint64(page/5000)))
		}
	}
	h := hog{name: "new-pages", guest: &testGuest{memory: memoryBounds(hogPages, 1024), bodies: map[string][]byte{abi.ExportHandle: cat(code, op(opUnreachable))}}}
	for first := 0; first < 16*hogPages; first += 5000 {
		var stores []byte
		for page := first; page < min(first+5000, 16*hogPages); page++ {
			stores = cat(stores, get(0), get(0), op(0x36, []byte{2}, uleb(uint64(page)*machinePage)))
		}
		h.guest.helpers = append(h.guest.helpers, helper{locals: vec(cat(uleb(1), []byte{typeI32})), code: stores})
	}
	return h
}

// growingHog takes all memory page by page.
func growingHog() hog {
	return hog{name: "memory.grow", guest: &testGuest{memory: memoryBounds(24, 1024), bodies: map[string][]byte{abi.ExportHandle: forever(
		i32c(1), op(opMemoryGrow, []byte{0}), i32c(1), op(opI32Add), op(opI32Eqz), op(opIf, []byte{blockVoid}), op(opUnreachable), []byte{opEnd})}}}
}

// hostHogs returns the hogs that occupy the host: by calls of its functions,
// and by spans of the maximum length.
func hostHogs() []hog {
	limits := abi.DefaultLimits()
	import1 := func(name, module, function string, code []byte) hog {
		guest := &testGuest{memory: memoryBounds(hogPages, 1024), bodies: map[string][]byte{abi.ExportHandle: forever(code)}}
		return hog{name: name, guest: guest.importing(module, function)}
	}
	vectors := int32(1 << 20)
	writing := import1("fd_write", abi.ImportWASI, "fd_write", cat(i32c(1), i32c(vectors), i32c(maxVectors), i32c(scratchAt), call(0), op(opDrop)))
	writing.guest.data = [][]byte{cat([]byte{0}, i32c(vectors), []byte{opEnd}, text(strings.Repeat("\x00\x00\x20\x00\x00\x04\x00\x00", maxVectors)))}
	spans := func(name, export string, length int, call func(*Instance) error) hog {
		return hog{name: name, call: call, guest: &testGuest{memory: memoryBounds(hogPages, 1024),
			bodies: map[string][]byte{export: spanc(bufferAt, uint32(length))}}}
	}
	frames := make([]byte, limits.RequestBytes)
	long := spans("hostd_describe", abi.ExportQuery, 0, func(g *Instance) error { _, err := g.describe(); return err })
	long.guest.manifest = strings.Replace(testManifest, `"abi"`, `"padding":"`+strings.Repeat("x", limits.ManifestBytes-len(testManifest)-20)+`","abi"`, 1)
	long.guest.memory = memoryBounds(hogPages, 1024)
	return []hog{
		import1("log", abi.ImportModule, abi.ImportLog, cat(i32c(1), i32c(0), i32c(60<<20), call(0))),
		import1("random_get", abi.ImportWASI, "random_get", cat(i32c(1<<20), i32c(maxRandomBytes), call(0), op(opDrop))),
		writing,
		spans("hostd_handle", abi.ExportHandle, limits.OutputBytes, nil),
		spans("hostd_snapshot", abi.ExportSnapshot, limits.SnapshotBytes, func(g *Instance) error { _, err := g.Snapshot(0); return err }),
		{name: "hostd_load", guest: &testGuest{memory: memoryBounds(hogPages, 1024)}, call: func(g *Instance) error { _, err := g.Load(0, 0, frames); return err }},
		long,
	}
}

// runs calls the hog's guest until stopped returns true or a call ends with
// ErrInterrupted. After a fault it continues with a new instance. opened gets
// each instance before its first call.
func (h hog) runs(m *Module, opened func(*Instance), stopped func() bool) error {
	for !stopped() {
		g, err := m.Instantiate(context.Background())
		if err != nil {
			return err
		}
		g.SetBudgets(Budgets{Command: unlimited, Event: unlimited, Query: unlimited, Load: unlimited})
		if h.prepare != nil {
			err = h.prepare(g)
		}
		opened(g)
		for err == nil && !stopped() {
			if h.call != nil {
				err = h.call(g)
			} else {
				_, err = g.Handle(0, nil, Env{})
			}
		}
		var fault *Fault
		if err := errors.Join(g.Close()); err != nil {
			return err
		}
		if err != nil && !errors.As(err, &fault) && !errors.Is(err, ErrInterrupted) {
			return err
		}
	}
	return nil
}

// hogging runs the hog on its own goroutine until stop.
func hogging(t testing.TB, h hog, m *Module) (stop func()) {
	var mu sync.Mutex
	var current *Instance
	ended := false
	var running sync.WaitGroup
	began := make(chan struct{})
	var once sync.Once
	running.Go(func() {
		err := h.runs(m, func(g *Instance) {
			mu.Lock()
			defer mu.Unlock()
			if current = g; ended {
				g.Interrupt()
			}
			once.Do(func() { close(began) })
		}, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return ended
		})
		once.Do(func() { close(began) })
		if err != nil {
			t.Errorf("%s: %v", h.name, err)
		}
	})
	<-began
	return func() {
		mu.Lock()
		ended = true
		if current != nil {
			current.Interrupt()
		}
		mu.Unlock()
		running.Wait()
	}
}

// kernelLoop returns an endless loop over a kernel of a language, or nil if its
// compiler is not installed.
func kernelLoop(t testing.TB, language, program string) (run func() (stop func())) {
	if _, err := exec.LookPath(program); err != nil {
		return nil
	}
	wasm := kernels(t, language)
	e := newEngine(t, Options{})
	return func() func() {
		k := openKernel(t, e, wasm, true)
		var running sync.WaitGroup
		running.Go(func() {
			defer k.instance.endTurn()
			k.meter.open(math.MaxInt64)
			stack := []uint64{math.MaxUint32, 0}
			spin := k.guest.ExportedFunction("spin")
			for range 1 << 30 {
				if err := spin.CallWithStack(k.ctx, stack); err != nil {
					if !errors.Is(err, ErrInterrupted) {
						t.Errorf("%s: %v", language, err)
					}
					return
				}
				stack[0] = math.MaxUint32
			}
		})
		return func() {
			k.instance.Interrupt()
			running.Wait()
		}
	}
}
