package engine

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/tetratelabs/wazero/api"
)

// lowest is a counter of fuel that keeps how far below zero it has been when
// the host looked at it.
type lowest struct {
	api.MutableGlobal
	seen int64
}

func (l *lowest) Get() uint64 {
	v := l.MutableGlobal.Get()
	l.seen = min(l.seen, int64(v))
	return v
}

// TestNothingRunsFarOnCredit: code without a loop, whatever it calls, does no
// more than some thousands of units beyond its slice before the host looks at
// its fuel: nothing else can stop it.
func TestNothingRunsFarOnCredit(t *testing.T) {
	e := newEngine(t, Options{})
	for _, h := range hogs() {
		switch h.name {
		case "many-calls", "many-calls-of-small-ones", "many-calls-that-return-early", "many-calls-by-table", "recursion-of-waits":
		default:
			continue
		}
		h.guest.bodies[abi.ExportApply] = i32c(0) // its memory need not be slow
		l := &lowest{}
		calls := 0
		err := h.runs(compile(t, e, h.guest.build()), func(g *Instance) {
			l.MutableGlobal = g.meter.fuel
			g.meter.fuel = l
		}, func() bool { calls++; return calls > 2 })
		if err != nil || calls < 3 {
			t.Errorf("%s: %v after %d", h.name, err, calls)
		}
		// The function with the calls is charged at its entry, 30,000 calls of 4.
		if most := int64(-130_000); l.seen < most {
			t.Errorf("%s: %d units beyond a slice, want %d at most", h.name, -l.seen, -most)
		}
	}
}

// TestPrepaidCodeCountsAsStack: what calls pay for before they call themselves
// and do on their way back is bounded by the stack.
func TestPrepaidCodeCountsAsStack(t *testing.T) {
	const most = stackBytes / framePrepaid
	for _, loads := range []int{1, 20, 1000} {
		for depth, ends := range map[int]bool{most / loads / 10: true, most/loads + 1: false} {
			h := recursion("", loads)
			h.guest.bodies[abi.ExportHandle] = cat(i32c(int32(depth)), op(0x24, uleb(1)), call(9), i64c(0))
			g := start(t, Options{}, h.guest)
			_, err := g.Handle(0, nil, Env{})
			var fault *Fault
			if ends && err != nil || !ends && (!errors.As(err, &fault) || fault.Kind != FaultStack) {
				t.Errorf("%d loads in each of %d calls: %v", loads, depth, err)
			}
		}
	}
}

// TestPagesAreMadeAhead: all but the end of a memory has its pages, which stay
// what they were.
func TestPagesAreMadeAhead(t *testing.T) {
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
