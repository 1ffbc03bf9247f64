package guest

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
)

// TestFaults makes a guest violate the contract in each way. It checks that the
// fault has the right kind, reveals nothing about the host and leaves the
// instance dead.
func TestFaults(t *testing.T) {
	replacing := func(export string, code []byte) *testGuest {
		return &testGuest{bodies: map[string][]byte{export: code}}
	}
	handle := func(g *Instance) error { _, err := g.Handle(0, []byte("x"), Env{}); return err }
	query := func(g *Instance) error { _, err := g.Query(0, nil, Env{}); return err }
	load := func(g *Instance) error { _, err := g.Load(0, 1, nil); return err }
	apply := func(g *Instance) error { return g.Apply(0, nil) }
	snapshot := func(g *Instance) error { _, err := g.Snapshot(0); return err }
	drop := func(g *Instance) error { return g.Drop(0) }
	dropping := func(code []byte, module, name string) *testGuest {
		guest := replacing(abi.ExportDrop, code)
		return guest.importing(module, name)
	}
	loadOne := func(code []byte) []byte { // runs code only for handles above 0
		return cat(get(1), op(opI32WrapI64), op(0x04, []byte{blockVoid}), code, []byte{opEnd}, i32c(0))
	}
	const limit = 2 << 20
	tests := []struct {
		name    string
		guest   *testGuest
		call    func(*Instance) error
		kind    FaultKind
		export  string
		message string
	}{
		{"unreachable", replacing(abi.ExportHandle, op(opUnreachable)), handle, FaultTrap, abi.ExportHandle, "unreachable"},
		{"unreachable in query", replacing(abi.ExportQuery, op(opUnreachable)), query, FaultTrap, abi.ExportQuery, "unreachable"},
		{"division by zero", replacing(abi.ExportApply, cat(i32c(1), i32c(0), op(0x6d))), apply, FaultTrap, abi.ExportApply, "divide by zero"},
		{"load outside memory", replacing(abi.ExportDrop, cat(i32c(-8), op(opI64Load, aligned(3)), op(opDrop))), drop, FaultTrap, abi.ExportDrop, "out of bounds"},
		{"stack overflow", replacing(abi.ExportDrop, cat(get(0), call(8))), drop, FaultStack, abi.ExportDrop, "stack"},

		{"span behind memory", replacing(abi.ExportHandle, spanc(24*pageBytes, 1)), handle, FaultSpan, abi.ExportHandle, "inside memory"},
		{"span over the end of memory", replacing(abi.ExportQuery, spanc(24*pageBytes-7, 8)), query, FaultSpan, abi.ExportQuery, "inside memory"},
		{"span that overflows", replacing(abi.ExportSnapshot, spanc(math.MaxUint32, 2)), snapshot, FaultSpan, abi.ExportSnapshot, "inside memory"},
		{"output over its limit and memory", replacing(abi.ExportHandle, spanc(0, limit+1)), handle, FaultSpan, abi.ExportHandle, "inside memory"},
		{"largest length", replacing(abi.ExportHandle, spanc(math.MaxUint32, math.MaxUint32)), handle, FaultSpan, abi.ExportHandle, "inside memory"},
		{"snapshot over its limit", replacing(abi.ExportSnapshot, spanc(0, 1<<20+1)), snapshot, FaultOutput, abi.ExportSnapshot, "limit 1048576"},

		{"load status 3", replacing(abi.ExportLoad, cat(get(1), op(opI32WrapI64), i32c(3), op(opI32Mul))), load, FaultStatus, abi.ExportLoad, "got 3"},
		{"load status -1", replacing(abi.ExportLoad, cat(get(1), op(opI32WrapI64), i32c(-1), op(opI32Mul))), load, FaultStatus, abi.ExportLoad, "got -1"},
		{"apply status 1", replacing(abi.ExportApply, i32c(1)), apply, FaultStatus, abi.ExportApply, "status 1"},
		{"no buffer", replacing(abi.ExportBuffer, i32c(0)), handle, FaultNoBuffer, abi.ExportBuffer, "allocated no buffer of 4096 bytes"},
		{"buffer outside memory", replacing(abi.ExportBuffer, i32c(24*pageBytes-4095)), handle, FaultSpan, abi.ExportBuffer, "inside memory"},
		{"buffer at the last address", replacing(abi.ExportBuffer, i32c(-1)), handle, FaultSpan, abi.ExportBuffer, "inside memory"},

		{"now in apply", (&testGuest{bodies: map[string][]byte{abi.ExportApply: cat(call(0), op(opI32WrapI64))}}).importing("hostd", "now"), apply, FaultForbidden, abi.ExportApply, "now may only be called"},
		{"random in load", (&testGuest{bodies: map[string][]byte{abi.ExportLoad: loadOne(cat(call(0), op(opDrop)))}}).importing("hostd", "random"), load, FaultForbidden, abi.ExportLoad, "random may only be called"},
		{"now in snapshot", (&testGuest{bodies: map[string][]byte{abi.ExportSnapshot: call(0)}}).importing("hostd", "now"), snapshot, FaultForbidden, abi.ExportSnapshot, "now may only be called"},
		{"random in drop", dropping(cat(call(0), op(opDrop)), "hostd", "random"), drop, FaultForbidden, abi.ExportDrop, "random may only be called"},
		{"log outside memory", dropping(cat(i32c(1), i32c(24*pageBytes), i32c(1), call(0)), "hostd", "log"), drop, FaultForbidden, abi.ExportDrop, "outside"},
		{"log of a length that overflows", dropping(cat(i32c(1), i32c(64), i32c(-1), call(0)), "hostd", "log"), drop, FaultForbidden, abi.ExportDrop, "outside"},
		{"proc_exit", dropping(cat(i32c(7), call(0)), "wasi_snapshot_preview1", "proc_exit"), drop, FaultTrap, abi.ExportDrop, "exited with code 7"},
		{"endless host calls", dropping(op(opLoop, []byte{blockVoid}, call(0), op(opDrop), op(opBr, uleb(0)), []byte{opEnd}), "wasi_snapshot_preview1", "sched_yield"),
			drop, FaultForbidden, abi.ExportDrop, "more than 1048576 calls"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bothEngines(t, func(t *testing.T, opts Options) {
				g := start(t, opts, test.guest)
				err := test.call(g)
				var fault *Fault
				if !errors.As(err, &fault) {
					t.Fatalf("got %v, want a *Fault", err)
				}
				if fault.Kind != test.kind || fault.Export != test.export || !strings.Contains(fault.Message, test.message) {
					t.Errorf("got %v in %s: %q, want %v in %s: %q", fault.Kind, fault.Export, fault.Message, test.kind, test.export, test.message)
				}
				for _, leak := range []string{".go", "goroutine", "wazero", "/", "\n"} {
					if strings.Contains(fault.Error()+strings.Join(fault.Trace, " "), leak) {
						t.Errorf("the text %q, %q reveals about the host: %q", fault, fault.Trace, leak)
					}
				}
				if over := errors.Is(err, abi.ErrOverLimit); over != (test.kind == FaultOutput) {
					t.Errorf("over a limit: %v", over)
				}
				if test.kind == FaultOutput { // the guest can continue: only the answer is lost
					if err := drop(g); err != nil {
						t.Errorf("drop after the fault: %v", err)
					}
					return
				}
				for name, call := range map[string]func(*Instance) error{"load": load, "apply": apply, "handle": handle, "query": query, "snapshot": snapshot, "drop": drop} {
					if err := call(g); !errors.Is(err, ErrInstanceDead) {
						t.Errorf("%s after the fault: %v", name, err)
					}
				}
			})
		})
	}
}

func TestLoadRejectionLeavesInstanceAlive(t *testing.T) {
	g := start(t, Options{}, &testGuest{bodies: map[string][]byte{abi.ExportLoad: cat(get(1), op(opI32WrapI64))}})
	for _, want := range []abi.LoadStatus{abi.LoadUnreadable, abi.LoadNoRoom, abi.LoadDone} {
		if status, err := g.Load(0, uint64(want), nil); err != nil || status != want {
			t.Errorf("load gave %v, %v, want %v", status, err, want)
		}
	}
}

func TestCondemnedInstanceIsDead(t *testing.T) {
	g := start(t, Options{}, &testGuest{})
	fault := g.Condemn(abi.ExportHandle, abi.ErrMalformed)
	if fault.Kind != FaultFrames || fault.Error() != "hostd_handle: bad frames: malformed frame" {
		t.Errorf("fault is %v", fault)
	}
	if _, err := g.Query(0, nil, Env{}); !errors.Is(err, ErrInstanceDead) {
		t.Errorf("query after: %v", err)
	}
}

// TestMemoryGrowBeyondCap checks that a guest sees memory.grow fail at the
// instance's limit and continues.
func TestMemoryGrowBeyondCap(t *testing.T) {
	grow := func(pages int32) []byte {
		return cat(stateAddress(), i32c(pages), op(opMemoryGrow, []byte{0}), op(opI64Extend), op(opI64Store, aligned(3)))
	}
	bothEngines(t, func(t *testing.T, opts Options) {
		g := start(t, opts, &testGuest{bodies: map[string][]byte{
			abi.ExportHandle: cat(grow(1000), stateSpan()),
			abi.ExportQuery:  cat(grow(1), stateSpan()),
		}})
		result := func(out []byte, err error) int32 {
			t.Helper()
			if err != nil || len(out) != 8 {
				t.Fatal(out, err)
			}
			return int32(uint32(out[0]) | uint32(out[1])<<8 | uint32(out[2])<<16 | uint32(out[3])<<24)
		}
		if got := result(g.Handle(0, nil, Env{})); got != 24 {
			t.Errorf("growing to the limit gave %d, want 24", got)
		}
		if got := result(g.Query(0, nil, Env{})); got != -1 {
			t.Errorf("growing over the limit gave %d, want -1", got)
		}
		if got := g.MemoryBytes(); got != 64<<20 {
			t.Errorf("memory is %d bytes, want the limit", got)
		}
	})
}

// TestMemoryGrowthKeepsContent checks that growing preserves the content and that
// new pages are zero up to the last byte.
func TestMemoryGrowthKeepsContent(t *testing.T) {
	g := start(t, Options{}, &testGuest{bodies: map[string][]byte{
		abi.ExportHandle: cat(addLength(), i32c(1), op(opMemoryGrow, []byte{0}), op(opDrop), stateSpan()),
		abi.ExportQuery:  spanc(30*pageBytes-16, 16),
	}})
	for i := range 6 {
		out, err := g.Handle(0, []byte("ab"), Env{})
		if err != nil || int(out[0]) != 2*(i+1) {
			t.Fatalf("after growing %d times: % x, %v", i, out, err)
		}
	}
	out, err := g.Query(0, nil, Env{})
	if err != nil || strings.Trim(string(out), "\x00") != "" || len(out) != 16 {
		t.Errorf("new memory holds % x, %v", out, err)
	}
}
