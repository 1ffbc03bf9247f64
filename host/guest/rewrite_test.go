package guest

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/abi"
)

var (
	programSeed  = flag.Uint64("program-seed", 1, "first seed of the random programs")
	programCount = flag.Int("programs", 300, "number of random programs")
)

// TestMeteringKeepsProgramResults runs random programs unmodified, metered, and
// with a counter of every instruction. Metering must not change results, and
// must charge at least the weights of the executed instructions.
func TestMeteringKeepsProgramResults(t *testing.T) {
	programs := uint64(*programCount)
	if testing.Short() {
		programs = min(programs, 50)
	}
	bothEngines(t, func(t *testing.T, opts Options) {
		e := newEngine(t, opts)
		most := 0.0
		seen := map[string]int{}
		for seed := *programSeed; seed < *programSeed+programs; seed++ {
			build := func(counting bool) []byte {
				random := rand.New(rand.NewPCG(seed, 0))
				p := &program{random: random, counting: counting}
				return p.build(1 + random.IntN(4))
			}
			plain, counted := openKernel(t, e, build(false), false), openKernel(t, e, build(true), false)
			metered := openKernel(t, e, build(false), true)
			countForms(t, build(false), seen)
			for argument := range uint64(3) {
				want, _ := plain.run(t, programFunction, argument)
				got, fuel := metered.run(t, programFunction, argument)
				before := counted.guest.ExportedGlobal("spent").Get()
				again, _ := counted.run(t, programFunction, argument)
				ran := int64(counted.guest.ExportedGlobal("spent").Get() - before)
				if again != want {
					t.Fatalf("seed %d: counting changes the result: the test is wrong", seed)
				}
				if got != want {
					t.Fatalf("seed %d: run(%d) is %d as it came and %d metered", seed, argument, want, got)
				}
				if fuel < ran {
					t.Fatalf("seed %d: run(%d) spent %d, instructions worth %d ran", seed, argument, fuel, ran)
				}
				most = max(most, float64(fuel)/float64(ran+1))
				if left := int64(metered.meter.stack.Get()); left != stackBytes {
					t.Fatalf("seed %d: %d bytes of stack are left, want %d", seed, left, stackBytes)
				}
			}
		}
		t.Logf("charged at most %.1f times what ran; %v", most, seen)
		for _, form := range []string{"unrolled", "late", "region", "wrapped", "by callers", "leaf calls"} {
			if seen[form] == 0 {
				t.Errorf("no program has a function or loop of the form %q", form)
			}
		}
	})
}

// countForms counts how the parts of a module are metered.
func countForms(t *testing.T, wasm []byte, seen map[string]int) {
	t.Helper()
	m, fault := parse(wasm, abi.DefaultLimits())
	if fault != nil {
		t.Fatal(fault)
	}
	count := func(form string, is bool) {
		if is {
			seen[form]++
		}
	}
	for i := range m.Functions {
		shape := m.Shape(i)
		count("region", shape.Region)
		count("wrapped", shape.Wrapped)
		count("by callers", shape.ByCallers)
		count("leaf calls", shape.Leaf)
		seen["unrolled"] += shape.Unrolled
		seen["late"] += shape.Late
	}
}

// TestUnrolledLoopsCostEachIteration checks that a short loop costs the same
// for each iteration, however many iterations it has and at whichever branch it
// is left.
func TestUnrolledLoopsCostEachIteration(t *testing.T) {
	void := []byte{blockVoid}
	down := cat(get(0), i32c(1), op(opI32Sub), op(opLocalTee, uleb(0)))
	for name, code := range map[string][]byte{
		"at its end":      cat(op(opLoop, void), down, op(opBrIf, uleb(0)), []byte{opEnd}),
		"by br":           cat(op(opBlock, void), op(opLoop, void), down, op(opIf, void), op(opBr, uleb(1)), []byte{opEnd}, op(opBr, uleb(1)), []byte{opEnd, opEnd}),
		"by br_if":        cat(op(opBlock, void), op(opLoop, void), down, op(opI32Eqz), op(opBrIf, uleb(1)), op(opBr, uleb(0)), []byte{opEnd, opEnd}),
		"by return":       cat(op(opLoop, void), down, op(opIf, void), op(opBr, uleb(1)), []byte{opEnd}, i32c(0), op(opReturn), []byte{opEnd}),
		"by a br_table":   cat(op(opBlock, void), op(opLoop, void), op(opBlock, void), down, op(opBrTable, vec(uleb(0)), uleb(1)), []byte{opEnd}, op(opBr, uleb(1)), []byte{opEnd, opEnd}),
		"with a value":    cat(op(opLoop, []byte{typeI32}), i32c(7), down, op(opBrIf, uleb(0)), []byte{opEnd}, op(opDrop)),
		"in another loop": cat(op(opLoop, void), op(opLoop, void), down, get(0), i32c(3), op(0x71), op(opI32Eqz), op(opI32Eqz), op(0x71), op(opBrIf, uleb(0)), []byte{opEnd}, get(0), op(opBrIf, uleb(0)), []byte{opEnd}),
	} {
		wasm := asmModule(asmSection(sectionType, vec(asmType(sig(i32, i32)))), asmSection(sectionFunction, vec(uleb(0))),
			asmSection(sectionMemory, vec(memoryBounds(1, 1))), asmSection(sectionExport, vec(cat(text("run"), []byte{kindFunction, 0}))),
			asmSection(sectionCode, vec(asmBody(nil, code, get(0)))))
		seen := map[string]int{}
		if countForms(t, wasm, seen); name != "by a br_table" && seen["unrolled"] == 0 {
			t.Errorf("%s: the loop is written once", name)
		}
		bothEngines(t, func(t *testing.T, opts Options) {
			k := openKernel(t, newEngine(t, opts), wasm, true)
			spent := func(turns uint64) int64 {
				result, fuel := k.run(t, "run", turns)
				if result != 0 {
					t.Errorf("%s: %d turns leave %d", name, turns, result)
				}
				return fuel
			}
			const step = 4 // the iterations of the inner loop in the last case
			each := spent(1+step) - spent(1)
			if each < step*4 || each > step*20 {
				t.Errorf("%s: %d turns cost %d", name, step, each)
			}
			for turns := uint64(1); turns < 60; turns++ {
				if got, want := spent(turns+step)-spent(turns), each; got != want {
					t.Errorf("%s: turns %d to %d cost %d, others %d", name, turns, turns+step, got, want)
				}
			}
			if got, want := spent(100_001)-spent(1), each*(100_000/step); got != want {
				t.Errorf("%s: 100,000 turns cost %d, want %d", name, got, want)
			}
		})
	}
}

// TestEveryPathIsCharged checks that a path that avoids the cases of a big
// switch pays for the instructions after them. Those instructions must not be
// charged to the last case, which this path does not pass.
func TestEveryPathIsCharged(t *testing.T) {
	const work = 300
	heavy := cat(bytes.Repeat(cat(get(0), i32c(3), op(opI32Add), op(opLocalSet, uleb(0))), work/3)) // each repetition is a constant, an addition and a local.set: 3 units
	cases := cat(bytes.Repeat(op(opBlock, []byte{blockVoid}), 7), get(0),
		op(opBrTable, vec(uleb(0), uleb(1), uleb(2), uleb(3), uleb(4), uleb(5)), uleb(6)), bytes.Repeat([]byte{opEnd, opNop}, 7))
	void := []byte{blockVoid}
	for name, code := range map[string][]byte{
		"else arm":              cat(get(0), op(opIf, void), cases, []byte{opElse}, heavy, []byte{opEnd}),
		"after an if":           cat(get(0), op(opIf, void), cases, []byte{opEnd}, heavy),
		"after an else":         cat(get(0), op(opIf, void), cases, []byte{opElse, opNop, opEnd}, heavy),
		"branch around":         cat(op(opBlock, void), get(0), op(opI32Eqz), op(opBrIf, uleb(0)), cases, []byte{opEnd}, heavy),
		"branch out of a loop":  cat(op(opBlock, void), op(opLoop, void), op(opBr, uleb(1)), []byte{opEnd}, cases, []byte{opEnd}, heavy),
		"after a loop":          cat(op(opLoop, void), get(0), op(opIf, void), cases, []byte{opEnd, opEnd}, heavy),
		"default of the switch": cat(bytes.Repeat(op(opBlock, void), 7), i32c(100), op(opBrTable, vec(uleb(0), uleb(1), uleb(2), uleb(3), uleb(4), uleb(5)), uleb(6)), bytes.Repeat([]byte{opEnd}, 7), heavy),
		"nested in the else":    cat(get(0), op(opIf, void), cases, []byte{opElse}, op(opBlock, void), heavy, []byte{opEnd, opEnd}),
	} {
		wasm := asmModule(asmSection(sectionType, vec(asmType(sig(i32, i32)))), asmSection(sectionFunction, vec(uleb(0))),
			asmSection(sectionMemory, vec(memoryBounds(1, 1))), asmSection(sectionExport, vec(cat(text("run"), []byte{kindFunction, 0}))),
			asmSection(sectionCode, vec(asmBody(nil, code, get(0)))))
		e := newEngine(t, Options{})
		plain, metered := openKernel(t, e, wasm, false), openKernel(t, e, wasm, true)
		want, _ := plain.run(t, "run", 0)
		got, fuel := metered.run(t, "run", 0)
		if got != want || want != work {
			t.Errorf("%s: the result is %d as it came and %d metered, want %d", name, want, got, work)
		}
		if fuel < work {
			t.Errorf("%s: %d units for instructions worth %d", name, fuel, work)
		}
	}
}

// TestSmallCalleesAreCharged checks that each call of a small function pays for
// the fuel that the function spends.
func TestSmallCalleesAreCharged(t *testing.T) {
	const small, middle, run = 0, 1, 2
	work := bytes.Repeat(cat(i32c(1), op(opI32Add)), 8) // costs 16 units
	turns := func(code []byte) []byte {
		return cat(op(opLoop, []byte{blockVoid}), code, get(0), i32c(1), op(opI32Sub), op(opLocalTee, uleb(0)), op(opBrIf, uleb(0)), []byte{opEnd})
	}
	once := cat(i32c(1), call(small), op(opDrop))
	for name, test := range map[string]struct {
		turn  []byte // one iteration of the loop in the called function
		calls int64  // calls of the small function per iteration
	}{
		"in a loop":           {once, 1},
		"through another":     {cat(i32c(1), call(middle), op(opDrop)), 2},
		"in an if":            {cat(get(0), op(opIf, []byte{blockVoid}), once, []byte{opEnd}), 1},
		"in a loop in a loop": {cat(i32c(3), op(opLocalSet, uleb(1)), op(opLoop, []byte{blockVoid}), once, get(1), i32c(1), op(opI32Sub), op(opLocalTee, uleb(1)), op(opBrIf, uleb(0)), []byte{opEnd}), 3},
		"twice":               {cat(once, bytes.Repeat(cat(get(0), op(opDrop)), 50), once), 2},
	} {
		wasm := asmModule(asmSection(sectionType, vec(asmType(sig(i32, i32)))), asmSection(sectionFunction, vec(uleb(0), uleb(0), uleb(0))),
			asmSection(sectionMemory, vec(memoryBounds(1, 1))), asmSection(sectionExport, vec(cat(text("run"), []byte{kindFunction, run}))),
			asmSection(sectionCode, vec(asmBody(nil, get(0), work), asmBody(nil, get(0), call(small), call(small)),
				asmBody(vec(cat(uleb(1), []byte{typeI32})), turns(test.turn), get(0)))))
		bothEngines(t, func(t *testing.T, opts Options) {
			k := openKernel(t, newEngine(t, opts), wasm, true)
			spent := func(turns uint64) int64 { _, fuel := k.run(t, "run", turns); return fuel }
			if each, least := (spent(1001)-spent(1))/1000, test.calls*(16+weightCall); each < least {
				t.Errorf("%s: a turn costs %d, its calls %d", name, each, least)
			}
		})
	}
}
