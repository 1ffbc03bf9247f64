package guest

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
)

var (
	mutationSeed  = flag.Uint64("mutation-seed", 1, "first seed of the mutated modules")
	mutationCount = flag.Int("mutations", 8000, "number of mutated modules")
)

// wideGuest is a test guest with something in every section.
func wideGuest() *testGuest {
	guest := &testGuest{
		tables:  [][]byte{tableOf(memoryBounds(2, 10))},
		globals: [][]byte{cat([]byte{typeI32, 1}, i32c(7), []byte{opEnd}), cat([]byte{typeI64, 0}, i64c(-7), []byte{opEnd})},
		helpers: []helper{{sig(i32, i32), []byte{1, 3, typeI64}, get(0)}},
		custom:  [][]byte{asmSection(sectionCustom, cat(text("name"), []byte{1}, uleb(9), vec(cat(uleb(3), text("helper")))))},
		bodies: map[string][]byte{
			abi.ExportQuery: cat(i32c(1), call(11), op(0x11, uleb(2), uleb(0)), op(opDrop), stateSpan()),
			abi.ExportDrop:  op(opLoop, []byte{blockVoid}, op(0x23, uleb(0)), op(opI32Eqz), op(0x0d, uleb(0)), []byte{opEnd}),
		},
	}
	return guest.importing("hostd", "log").importing("wasi_snapshot_preview1", "fd_write")
}

// mutate changes one to four bytes of a module, or moves a piece of it.
func mutate(random *rand.Rand, valid []byte) []byte {
	wasm := bytes.Clone(valid)
	for range 1 + random.IntN(4) {
		at := 8 + random.IntN(len(wasm)-8)
		switch random.IntN(5) {
		case 0:
			wasm[at] = byte(random.Uint32())
		case 1:
			wasm[at] ^= 1 << random.IntN(8)
		case 2:
			wasm[at]++
		case 3:
			wasm = append(wasm[:at], wasm[at+1:]...)
		case 4:
			wasm = append(wasm[:at], append([]byte{byte(random.Uint32())}, wasm[at:]...)...)
		}
	}
	return wasm
}

// TestMutatedModules compiles 8,000 damaged modules and runs those that
// compile. Each must be rejected, or its calls must end, either as the calls
// of the unmetered module do or because metering stops them. The process must
// survive, another guest must still answer, and the engine must keep nothing.
func TestMutatedModules(t *testing.T) {
	bases := [][]byte{wideGuest().build(), equalGuest(t, "assembled")}
	e := newEngine(t, Options{})
	neighbour := instantiate(t, mustCompile(t, e, bases[0]))
	mustCompile(t, e, bases[1])
	before, goroutines := e.Usage(), runtime.NumGoroutine()
	t.Logf("seed %d", *mutationSeed)
	random := rand.New(rand.NewPCG(*mutationSeed, 0))
	refused, contained, stopped, compared := 0, 0, 0, 0
	for i := range *mutationCount {
		wasm := mutate(random, bases[i%len(bases)])
		parsed, err := admit(wasm, e.limits)
		if err != nil {
			var admission *AdmissionError
			if !errors.As(err, &admission) {
				t.Fatalf("admission failed with %v", err)
			}
			refused++
			continue
		}
		code, err := e.compile(t.Context(), parsed.Prepare())
		if err != nil {
			if strings.Contains(err.Error(), "too complex for the runtime to validate") {
				contained++
			}
			refused++
			continue
		}
		m := &Module{engine: e, compiled: code, description: parsed.Describe(), logger: e.logger, users: 1}
		if err := e.retain(); err != nil {
			t.Fatal(err)
		}
		if compareMutated(t, m, wasm) {
			compared++
		} else {
			stopped++
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d refused, %d panics of the validator contained, %d stopped, %d compared", refused, contained, stopped, compared)
	if compared == 0 || refused == 0 || stopped == 0 && *mutationCount >= 8000 {
		t.Error("the mutations are all of one kind")
	}
	if _, err := neighbour.Handle(0, []byte("x"), Env{}); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
	if after := e.Usage(); after != before || runtime.NumGoroutine() > goroutines {
		t.Errorf("%+v and %d goroutines before, %+v and %d after", before, goroutines, after, runtime.NumGoroutine())
	}
}

// compareMutated calls a metered module, and also the unmetered one if the
// metered one ended by itself, because then the unmetered one ends too. It
// returns false if metering had to stop the guest.
func compareMutated(t *testing.T, m *Module, wasm []byte) bool {
	metered, err := m.Instantiate(t.Context())
	if err != nil {
		return true // for example, because data lies outside memory
	}
	defer metered.Close()
	got := outcomeOf(metered)
	if strings.Contains(got, FaultFuel.String()) || strings.Contains(got, FaultStack.String()) {
		return false
	}
	if want := outcomeOf(asItCame(t, m.engine, withoutCustom(wasm))); got != want {
		t.Errorf("a mutated module gives %q metered and %q as it came\n% x", got, want, wasm)
	}
	return true
}

// outcomeOf returns the results of a guest's calls as text.
func outcomeOf(g *Instance) string {
	g.SetBudgets(Budgets{Command: 1 << 20, Query: 1 << 20, Event: 1 << 20, Load: 1 << 20})
	var all strings.Builder
	note := func(out []byte, err error) bool {
		var fault *Fault
		switch {
		case errors.As(err, &fault):
			fmt.Fprintf(&all, "%v: %s\n", fault.Kind, fault.Message)
		default:
			fmt.Fprintf(&all, "%x %v\n", out, err)
		}
		return err == nil
	}
	load := func(handle uint64) ([]byte, error) {
		status, err := g.Load(0, handle, nil)
		return []byte{byte(status)}, err
	}
	frames := abi.AppendName(nil, "name")
	_ = note(load(0)) && note(load(3)) && note(g.Handle(0, frames, Env{Now: 1})) && note(nil, g.Apply(3, frames)) &&
		note(g.Snapshot(3)) && note(g.Query(0, frames, Env{})) && note(nil, g.Drop(0))
	return all.String()
}

// TestValidatorPanicIsContained uses code that calls a function with a
// nonexistent type, which makes the runtime's validator panic. Admission
// rejects it, and unknown panics of this kind are recovered.
func TestValidatorPanicIsContained(t *testing.T) {
	wasm := asmModule(asmSection(sectionType, vec(asmType(sig("", "")))), asmSection(sectionFunction, vec(uleb(0), uleb(5))),
		asmSection(sectionMemory, vec([]byte{0, 1})), asmSection(sectionCode, vec(asmBody(nil, call(1)), asmBody(nil))))
	e := newEngine(t, Options{})
	if _, err := e.Admit(wasm); err == nil || !strings.Contains(err.Error(), "no type 5") {
		t.Errorf("admission gave %v", err)
	}
	_, err := e.compile(t.Context(), wasm)
	var refused *AdmissionError
	if !errors.As(err, &refused) || refused.Where != "code" || !strings.Contains(refused.Reason, "too complex for the runtime to validate") {
		t.Errorf("compile gave %v", err)
	}
}

// TestDeepNesting compiles functions of nested blocks up to the maximum size of
// a function. That must neither panic nor take forever.
func TestDeepNesting(t *testing.T) {
	depth := 2_000
	if !testing.Short() {
		depth = 8_000
	}
	code := cat(bytes.Repeat(op(opBlock, []byte{blockVoid}), depth), bytes.Repeat([]byte{opEnd}, depth))
	g := start(t, Options{}, &testGuest{bodies: map[string][]byte{abi.ExportDrop: code}})
	if err := g.Drop(0); err != nil {
		t.Fatal(err)
	}
}
