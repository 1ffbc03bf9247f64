package guest

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
)

// endless is a guest whose commands and events never end.
func endless() *testGuest {
	loop := cat(op(opLoop, []byte{blockVoid}), op(opBr, uleb(0)), []byte{opEnd}, op(opUnreachable))
	return &testGuest{bodies: map[string][]byte{abi.ExportHandle: loop, abi.ExportApply: loop}}
}

// spin is a guest whose commands run one iteration of a loop for each byte of
// input, and whose events run 1000 iterations for each 23 bytes of input.
func spin() *testGuest {
	turns := func(each int32, perByte int32) []byte {
		return cat(get(1), i32c(each), op(opI32Mul), i32c(perByte), op(opI32DivS), op(opLocalSet, uleb(1)),
			op(opLoop, []byte{blockVoid}), get(1), i32c(1), op(opI32Sub), op(opLocalTee, uleb(1)), op(opBrIf, uleb(0)), []byte{opEnd})
	}
	return &testGuest{bodies: map[string][]byte{
		abi.ExportHandle: cat(turns(1, 1), i64c(0)),
		abi.ExportApply:  cat(turns(1000, 23), i32c(0)),
	}}
}

func TestFuelMatchesCostOfCall(t *testing.T) {
	bothEngines(t, func(t *testing.T, opts Options) {
		g := start(t, opts, spin())
		spent := func(bytes int) int64 {
			t.Helper()
			if _, err := g.Handle(0, make([]byte, bytes), Env{}); err != nil {
				t.Fatal(err)
			}
			return g.Fuel()
		}
		first := spent(4000)
		if again := spent(4000); again != first {
			t.Errorf("the same command spent %d and then %d", first, again)
		}
		if other := start(t, opts, spin()); other != nil {
			if _, err := other.Handle(0, make([]byte, 4000), Env{Now: 5, Seed: 7}); err != nil || other.Fuel() != first {
				t.Errorf("on a different instance it spent %d, %v, want %d", other.Fuel(), err, first)
			}
		}
		// 1,000,000 iterations take many slices.
		long := spent(1_000_000)
		perTurn := (long - first) / (1_000_000 - 4000)
		if perTurn < 4 || perTurn > 6 || (long-first)%(1_000_000-4000) != 0 {
			t.Errorf("4000 turns spent %d and 1000000 turns %d: not in proportion", first, long)
		}
	})
}

// TestCommandEndsAtItsFuelBudget checks that a command succeeds with exactly
// the fuel that it needs and fails with one unit less.
func TestCommandEndsAtItsFuelBudget(t *testing.T) {
	frames := make([]byte, 200_000)
	g := start(t, Options{}, spin())
	if _, err := g.Handle(0, frames, Env{}); err != nil {
		t.Fatal(err)
	}
	need := g.Fuel()
	for budget, enough := range map[int64]bool{need - 1: false, need: true, need + 1: true, 1: false} {
		g := start(t, Options{}, spin())
		g.SetBudgets(Budgets{Command: budget})
		_, err := g.Handle(0, frames, Env{})
		var fault *Fault
		switch {
		case enough && (err != nil || g.Fuel() != need):
			t.Errorf("budget %d of %d: spent %d, %v", budget, need, g.Fuel(), err)
		case !enough && (!errors.As(err, &fault) || fault.Kind != FaultFuel):
			t.Errorf("budget %d of %d: %v", budget, need, err)
		case !enough && (g.Fuel() <= budget-1 || g.Fuel() > need):
			t.Errorf("budget %d of %d: spent %d", budget, need, g.Fuel())
		}
	}
}

// TestBatchSizeDoesNotAffectFuelLimit checks that a history that can be
// applied event by event can be applied in one batch, and that a single event
// that spends too much cannot be applied.
func TestBatchSizeDoesNotAffectFuelLimit(t *testing.T) {
	event := abi.AppendInputEvent(nil, 1, 2, "", nil)
	if len(event) != 23 {
		t.Fatalf("an event has %d bytes: the test is wrong", len(event))
	}
	var batch []byte
	for range 1000 {
		batch = append(batch, event...)
	}
	for budget, enough := range map[int64]bool{3000: false, 10_000: true} {
		for name, frames := range map[string][]byte{"an event": event, "a batch": batch} {
			g := start(t, Options{}, spin())
			g.SetBudgets(Budgets{Event: budget})
			err := g.Apply(0, frames)
			var fault *Fault
			if enough && err != nil || !enough && (!errors.As(err, &fault) || fault.Kind != FaultFuel) {
				t.Errorf("budget %d, %s: %v", budget, name, err)
			}
		}
	}
}

// unlimited is a budget that no test uses up.
const unlimited = 1 << 60

// TestCollectorRunsDuringEndlessLoops checks that the garbage collector, which must
// stop every goroutine, still runs while guests loop on every processor, and
// that Interrupt ends the loops.
func TestCollectorRunsDuringEndlessLoops(t *testing.T) {
	var looping sync.WaitGroup
	var guests []*Instance
	for range runtime.GOMAXPROCS(0) + 1 {
		g := start(t, Options{}, endless())
		g.SetBudgets(Budgets{Command: unlimited})
		guests = append(guests, g)
		looping.Go(func() {
			if _, err := g.Handle(0, nil, Env{}); !errors.Is(err, ErrInterrupted) {
				t.Errorf("the loop ended with %v", err)
			}
		})
	}
	for range 20 {
		runtime.GC()
	}
	for _, g := range guests {
		g.Interrupt()
	}
	looping.Wait()
	if _, err := guests[0].Handle(0, nil, Env{}); !errors.Is(err, ErrInstanceDead) {
		t.Errorf("a call after the interruption gives %v", err)
	}
}

func TestCallEndsAtItsDeadline(t *testing.T) {
	g := start(t, Options{}, endless())
	g.SetBudgets(Budgets{Command: unlimited, Event: 1 << 20})
	if _, err := g.Handle(0, nil, Env{Deadline: time.Now().Add(5 * time.Millisecond)}); err != ErrDeadline {
		t.Errorf("handle ended with %v", err)
	}
	// A deadline applies only to one call, and not to Apply.
	g = start(t, Options{}, spin())
	if _, err := g.Handle(0, []byte("x"), Env{Deadline: time.Unix(1, 0)}); err != nil {
		t.Errorf("a short call did not end: %v", err)
	}
	if err := g.Apply(0, make([]byte, 23*1000)); err != nil {
		t.Errorf("apply ended with %v", err)
	}
}

// TestCopiesInChunks checks that bulk operations over many chunks give the
// right results, with overlaps in both directions.
func TestCopiesInChunks(t *testing.T) {
	const n = 3*bulkChunk + 12345
	fill := func(at int32) []byte { // byte i of n is i*7>>3, written by the command itself
		return cat(i32c(0), op(opLocalSet, uleb(2)), op(opLoop, []byte{blockVoid}),
			i32c(at), get(2), op(opI32Add), get(2), i32c(7), op(opI32Mul), i32c(3), op(opI32ShrU), op(0x3a, aligned(0)),
			get(2), i32c(1), op(opI32Add), op(opLocalTee, uleb(2)), i32c(n), op(opI32LtU), op(opBrIf, uleb(0)), []byte{opEnd})
	}
	const at = 1 << 20
	for name, move := range map[string]struct{ to, from int32 }{
		"upwards": {at + 777, at}, "downwards": {at, at + 777}, "apart": {at + n, at}, "onto itself": {at, at},
	} {
		for i, probe := range []int32{0, 1, bulkChunk - 1, bulkChunk, 2*bulkChunk + 5, n - 1} {
			code := cat(fill(move.from), i32c(move.to), i32c(move.from), i32c(n), []byte{opMisc, miscMemoryCopy, 0, 0},
				i32c(statesAt), i32c(move.to+probe), op(0x2d, aligned(0)), op(0x36, aligned(2)), i64c(int64(abi.PackSpan(statesAt, 4))))
			g := start(t, Options{}, &testGuest{memory: memoryBounds(200, 200), locals: map[string][]byte{abi.ExportHandle: vec(cat(uleb(1), []byte{typeI32}))},
				bodies: map[string][]byte{abi.ExportHandle: code}})
			out, err := g.Handle(0, nil, Env{})
			if want := byte(uint32(probe) * 7 >> 3); err != nil || out[0] != want {
				t.Errorf("%s, probe %d: % x, %v, want %x", name, i, out, err, want)
			}
		}
	}
}

// TestHostWorkIsCharged checks that a call is charged for the bytes that a host
// function reads or writes.
func TestHostWorkIsCharged(t *testing.T) {
	for name, charged := range map[string]func(bytes int32) *testGuest{
		"log": func(bytes int32) *testGuest {
			return (&testGuest{bodies: map[string][]byte{abi.ExportHandle: cat(i32c(1), i32c(0), i32c(bytes), call(0), i64c(0))}}).importing("hostd", "log")
		},
		"random_get": func(bytes int32) *testGuest {
			return (&testGuest{bodies: map[string][]byte{abi.ExportHandle: cat(i32c(scratchAt), i32c(bytes), call(0), op(opDrop), i64c(0))}}).importing("wasi_snapshot_preview1", "random_get")
		},
	} {
		var spent [2]int64
		for i, bytes := range []int32{0, 800} {
			g := start(t, Options{}, charged(bytes))
			if _, err := g.Handle(0, nil, Env{}); err != nil {
				t.Fatal(err)
			}
			spent[i] = g.Fuel()
		}
		if spent[0] < weightHost || spent[1]-spent[0] != 100 {
			t.Errorf("%s of 0 and 800 bytes spent %d", name, spent)
		}
	}
}

// TestLongCallsTakeTurns checks that more endless calls than there are slots
// all reach the end of their budget, and that every slot is released.
func TestLongCallsTakeTurns(t *testing.T) {
	e := newEngine(t, Options{})
	m := mustCompile(t, e, endless().build())
	var looping sync.WaitGroup
	for range 3 * runtime.GOMAXPROCS(0) {
		g := instantiate(t, m)
		g.SetBudgets(Budgets{Command: 100 * sliceFuel})
		looping.Go(func() {
			var fault *Fault
			if _, err := g.Handle(0, nil, Env{}); !errors.As(err, &fault) || fault.Kind != FaultFuel {
				t.Errorf("the loop ended with %v", err)
			}
		})
	}
	looping.Wait()
	if held := len(e.turns); held != 0 {
		t.Errorf("%d turns are still held", held)
	}
}

// preemptions counts the preemptions of a call.
type preemptions int

func (p *preemptions) Preempt() { *p++ }

// TestLongCallsInvokeLong checks that a long call notifies Env.Long once while
// it runs, and that short calls and Apply do not.
func TestLongCallsInvokeLong(t *testing.T) {
	g := start(t, Options{}, spin())
	g.SetBudgets(Budgets{Event: unlimited})
	for turns, want := range map[int]int{10: 0, 1_000_000: 1} {
		told := preemptions(0)
		if _, err := g.Handle(0, make([]byte, turns), Env{Long: &told}); err != nil || int(told) != want {
			t.Errorf("a call of %d units was preempted %d times, want %d; %v", g.Fuel(), told, want, err)
		}
		if err := g.Apply(0, make([]byte, 200_000)); err != nil || int(told) != want {
			t.Errorf("an apply of %d units was preempted %d times, want %d; %v", g.Fuel(), told, want, err)
		}
	}
}
