package guest

import (
	"bytes"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/tetratelabs/wazero/api"
)

// lowest is a fuel counter that records how far below zero it was when the host
// read it.
type lowest struct {
	api.MutableGlobal
	seen int64
}

func (l *lowest) Get() uint64 {
	v := l.MutableGlobal.Get()
	l.seen = min(l.seen, int64(v))
	return v
}

// TestCodeWithoutLoopsChecksFuel checks that code without a loop, whatever it
// calls, spends at most some thousands of units beyond its slice before the
// host checks its fuel, because nothing else can stop the code.
func TestCodeWithoutLoopsChecksFuel(t *testing.T) {
	e := newEngine(t, Options{})
	for _, h := range hogs() {
		switch h.name {
		case "many-calls", "many-calls-of-small-ones", "many-calls-that-return-early", "many-calls-by-table", "recursion-of-waits":
		default:
			continue
		}
		h.guest.bodies[abi.ExportApply] = i32c(0) // replaces the slow memory, which this test does not need
		l := &lowest{}
		calls := 0
		err := h.runs(mustCompile(t, e, h.guest.build()), func(g *Instance) {
			l.MutableGlobal = g.meter.fuel
			g.meter.fuel = l
		}, func() bool { calls++; return calls > 2 })
		if err != nil || calls < 3 {
			t.Errorf("%s: %v after %d", h.name, err, calls)
		}
		// The function with the calls is charged at its entry: 30,000 calls of 4
		// units.
		if most := int64(-130_000); l.seen < most {
			t.Errorf("%s: %d units beyond a slice, want %d at most", h.name, -l.seen, -most)
		}
	}
}

// worked is a fuel counter that records the most work a guest has done between
// two checks of the host, as the guest counts it in its global 2.
type worked struct {
	api.MutableGlobal
	guest      *Instance
	done, most int64
}

func (w *worked) Get() uint64 {
	done := int64(w.guest.guest.ExportedGlobal("work").Get())
	w.most = max(w.most, done-w.done)
	w.done = done
	return w.MutableGlobal.Get()
}

// TestWorkAfterCallsChecksFuel checks, for each form of work, that a
// recursion that returns from its calls does no more work between two checks
// of the host than a slice and the stack allow.
func TestWorkAfterCallsChecksFuel(t *testing.T) {
	void := []byte{blockVoid}
	load := cat(i32c(0), op(opI32Load, aligned(2)), op(opDrop))
	work := func(n int) []byte { // does n loads
		return times(n, cat(op(0x23, uleb(2)), i32c(1), op(opI32Add), op(0x24, uleb(2)), load))
	}
	back := cat(i32c(0), op(opBrIf, uleb(0)), []byte{opEnd}) // a branch that is not taken
	ifNot := func(arm []byte, code ...[]byte) []byte {
		return cat(i32c(0), op(opIf, void), arm, []byte{opEnd}, cat(code...))
	}
	const self, small, named = 9, 10, 11
	for name, test := range map[string]struct{ front, behind []byte }{
		"little":                 {nil, work(mostCredit / workAccess)},
		"much":                   {nil, work(400)},
		"calls of small ones":    {nil, times(100, call(small))},
		"calls of named ones":    {nil, times(100, call(named))},
		"many calls":             {nil, times(1000, call(small))},
		"calls by a table":       {nil, times(100, cat(i32c(0), op(opCallIndirect, uleb(uint64(len(contract))), uleb(0))))},
		"calls of itself":        {work(2), times(100, call(self))},
		"a switch":               {nil, cat(op(opBlock, void), i32c(0), op(opBrTable, uleb(6), times(7, uleb(0))), []byte{opEnd}, work(400))},
		"many switches":          {nil, times(50, cat(op(opBlock, void), i32c(0), op(opBrTable, uleb(6), times(7, uleb(0))), []byte{opEnd}, work(2)))},
		"around an arm":          {nil, times(50, ifNot(work(4), work(2)))},
		"around an arm of calls": {nil, times(50, ifNot(times(2, call(small)), call(small)))},
		"in an arm":              {nil, cat(i32c(1), op(opIf, void), work(200), []byte{opElse}, work(4), []byte{opEnd}, work(200))},
		"a loop":                 {nil, cat(op(opLoop, void), work(90), back)},
		"a loop that calls":      {nil, cat(op(opLoop, void), work(400), call(small), back)},
		"a loop of calls":        {nil, cat(op(opLoop, void), times(50, call(small)), back)},
		"behind a loop":          {nil, cat(op(opLoop, void), call(small), back, work(400))},
	} {
		h := strewnHog(name, nil, cat(test.front, op(0x23, uleb(1)), op(opI32Eqz), op(opIf, void), op(opReturn), []byte{opEnd},
			op(0x23, uleb(1)), i32c(1), op(opI32Sub), op(0x24, uleb(1)), call(self), test.behind), work(2), work(2))
		h.guest.globals = append(h.guest.globals, h.guest.globals[0])
		h.guest.exports = append(h.guest.exports[2:], cat(text("work"), []byte{kindGlobal}, uleb(2)))
		h.guest.tables = [][]byte{tableOf(memoryBounds(1, 1))}
		h.guest.bodies[abi.ExportApply] = cat(i32c(0), op(opRefFunc, uleb(named)), i32c(1), misc(miscTableFill, 0), i32c(0))
		m, fault := parse(h.guest.build(), abi.DefaultLimits())
		if fault != nil {
			t.Fatal(fault)
		}
		deep := stackBytes/m.Shape(self).FrameBytes - 2
		h.guest.bodies[abi.ExportHandle] = cat(i32c(int32(deep)), op(0x24, uleb(1)), call(self), i64c(0))
		g := start(t, Options{}, h.guest)
		if err := g.Apply(0, nil); err != nil {
			t.Fatal(err)
		}
		w := &worked{MutableGlobal: g.meter.fuel, guest: g}
		g.meter.fuel = w
		g.SetBudgets(Budgets{Command: unlimited})
		if _, err := g.Handle(0, nil, Env{}); err != nil {
			t.Fatalf("%s, %d calls deep: %v", name, deep, err)
		}
		const most = (sliceFuel+longStretch)/weightAccess + stackBytes/workAccess
		t.Logf("%s: %d calls deep, %d loads in all, %d in a row", name, deep, w.done, w.most)
		if w.most > most {
			t.Errorf("%s: %d loads in a row, want %d at most", name, w.most, most)
		}
	}
}

// TestMemoryPagesArePrepopulated checks that all pages of a memory except those at its
// end exist, and that creating them does not change their content.
func TestMemoryPagesArePrepopulated(t *testing.T) {
	const pages = 100
	grow := cat(i32c(pages), op(opMemoryGrow, []byte{0}), op(opDrop), i64c(0))
	g := start(t, Options{}, &testGuest{memory: memoryBounds(pages, 1024), bodies: map[string][]byte{abi.ExportHandle: grow}})
	want := bytes.Repeat([]byte("hostd "), pages*pageBytes)[:pages*pageBytes]
	if !g.guest.Memory().Write(0, want) {
		t.Fatal("the memory is too small")
	}
	for grown := 1; grown <= 3; grown++ {
		if want := grown*pages*pageBytes - untouchedBytes; g.memory.present != want {
			t.Errorf("%d bytes have their pages, want %d", g.memory.present, want)
		}
		if _, err := g.Handle(0, nil, Env{}); err != nil {
			t.Fatal(err)
		}
	}
	touch(g.memory.reserved[:g.memory.length])
	got, _ := g.guest.Memory().Read(0, uint32(g.memory.length))
	if !bytes.Equal(got[:len(want)], want) || bytes.ContainsFunc(got[len(want):], func(r rune) bool { return r != 0 }) {
		t.Error("making pages has changed what is in them")
	}
}
