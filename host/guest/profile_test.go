package guest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
)

// turning returns code that runs n iterations of a loop, if local 0 is zero.
func turning(n int32) []byte {
	return cat(op(opLoop, []byte{blockVoid}), get(0), i32c(1), op(opI32Add), op(opLocalTee, uleb(0)), i32c(n), op(opI32LtU), op(opBrIf, uleb(0)), []byte{opEnd})
}

// spenders is a guest whose commands spend three times as much in the function
// hot as in the function cold, which has no name.
func spenders() *testGuest {
	local := cat([]byte{1}, uleb(1), []byte{typeI32})
	guest := &testGuest{helpers: []helper{{locals: local, code: turning(3000)}, {locals: local, code: turning(1000)}}}
	hot, cold := guest.helperIndex(0), guest.helperIndex(1)
	guest.bodies = map[string][]byte{abi.ExportHandle: cat(call(hot), call(cold), i64c(0))}
	names := vec(cat(uleb(guest.contractIndex(abi.ExportHandle)), text("decide")), cat(uleb(hot), text("hot")))
	guest.custom = [][]byte{asmSection(sectionCustom, cat(text("name"), []byte{1}, uleb(uint64(len(names))), names))}
	return guest
}

// TestProfileAttributesFuel profiles short commands, none of which spends a
// slice. The profile must show how much each function spends and who calls it,
// and profiling must not change the results of the guest.
func TestProfileAttributesFuel(t *testing.T) {
	for _, interpreter := range []bool{false, true} {
		t.Run(fmt.Sprintf("interpreter=%v", interpreter), func(t *testing.T) {
			g := start(t, Options{Interpreter: interpreter}, spenders())
			handle := func() int64 {
				if _, err := g.Handle(0, nil, Env{}); err != nil {
					t.Fatal(err)
				}
				return g.Fuel()
			}
			costs := handle()
			if costs > sliceFuel {
				t.Fatalf("a command spends %d", costs)
			}
			const commands = 2000
			p := NewProfile(1)
			g.Sample(p)
			for range commands {
				if got := handle(); got != costs {
					t.Fatalf("a command spends %d, %d while a profile is taken", costs, got)
				}
			}
			g.Sample(nil)
			taken := p.Stacks()
			handle()
			var sum, samples int64
			by := map[string]int64{}
			for _, s := range taken {
				sum += s.Fuel
				samples += s.Samples
				by[strings.Join(s.Functions, " < ")] += s.Fuel
			}
			if all := costs * commands; sum > all || sum < all-4*sliceFuel {
				t.Errorf("%d of %d units are in the profile", sum, all)
			}
			if least := costs * commands / (2 * sliceFuel); samples < least || samples > 4*least {
				t.Errorf("%d samples", samples)
			}
			hot, cold := by["hot < decide"], by["function 10 < decide"]
			if hot < 2*cold || hot > 4*cold || hot+cold < sum*9/10 {
				t.Errorf("%v", by)
			}
			if !slices.EqualFunc(taken, p.Stacks(), func(a, b ProfiledStack) bool { return a.Fuel == b.Fuel }) {
				t.Error("a profile continues after its end")
			}
		})
	}
}

// TestProfileOfLongCalls checks that a long call is sampled while it runs,
// and still takes turns with other calls and can be interrupted.
func TestProfileOfLongCalls(t *testing.T) {
	guest := spenders()
	guest.helpers[0].code = turning(30_000_000)
	g := start(t, Options{}, guest)
	p := NewProfile(1)
	g.Sample(p)
	long := preemptions(0)
	if _, err := g.Handle(0, nil, Env{Long: &long}); err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, s := range p.Stacks() {
		sum += s.Fuel
	}
	if all := g.Fuel(); long != 1 || sum > all || sum < all*9/10 {
		t.Errorf("%d of %d units are in the profile, the call was found to be long %d times", sum, all, long)
	}
}

// TestProfilesAreBounded checks that a guest that continually has new stacks
// does not exhaust memory, and that its fuel is counted nevertheless.
func TestProfilesAreBounded(t *testing.T) {
	p := NewProfile(1)
	long := strings.Repeat("x", 1000)
	const samples = 3 * profileStacks
	for i := range samples {
		p.add([]string{"leaf", fmt.Sprint(long, i)}, 2)
	}
	var sum int64
	all := p.Stacks()
	for _, s := range all {
		sum += s.Fuel
	}
	if len(all) > profileStacks+1 || p.bytes > profileBytes+2000 || sum != 2*samples {
		t.Errorf("%d stacks, %d bytes, %d units", len(all), p.bytes, sum)
	}
}
