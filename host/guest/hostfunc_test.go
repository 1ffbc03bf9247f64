package guest

import (
	"encoding/binary"
	"testing"

	"github.com/hostd/hostd/abi"
)

func TestHostFunctionsMatchContract(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range hostFunctions() {
		if seen[f.module+"."+f.name] {
			t.Errorf("%s.%s is listed twice", f.module, f.name)
		}
		seen[f.module+"."+f.name] = true
	}
	for name, want := range map[string]signature{
		abi.ImportLog: sig(i32+i32+i32, ""), abi.ImportNow: sig("", i64), abi.ImportRandom: sig("", i64),
	} {
		if s, ok := importable(abi.ImportModule, name); !ok || s != want {
			t.Errorf("%s has signature %v, want %v", name, s, want)
		}
	}
	if len(seen) != 3+21 {
		t.Errorf("%d functions are offered, want 24", len(seen))
	}
}

// FuzzHostFunctions calls every function that a guest can call, with any
// pointers and lengths. No call may write outside the guest's memory, and each
// must end with a result or a fault of the guest.
func FuzzHostFunctions(f *testing.F) {
	word := func(values ...uint64) (out []byte) {
		for _, v := range values {
			out = binary.LittleEndian.AppendUint64(out, v)
		}
		return out
	}
	const end = 24 * pageBytes
	for i := range hostFunctions() {
		f.Add(uint8(i), word(1, scratchAt, 1, scratchAt))
		f.Add(uint8(i), word(1, end-1, 1<<32-1, end))
		f.Add(uint8(i), word(0, 0, 64, end-8))
	}
	e := newEngine(f, Options{})
	g := instantiate(f, mustCompile(f, e, (&testGuest{}).build()))
	functions := hostFunctions()
	f.Fuzz(func(t *testing.T, which uint8, parameters []byte) {
		function := functions[int(which)%len(functions)]
		stack := make([]uint64, 9)
		for i := range stack {
			if len(parameters) >= 8 {
				stack[i] = binary.LittleEndian.Uint64(parameters)
				parameters = parameters[8:]
			}
		}
		for i, param := range function.Params {
			if param == typeI32 {
				stack[i] = uint64(uint32(stack[i])) // as the runtime passes parameters
			}
		}
		g.begin()
		g.deciding = true
		defer func() {
			switch r := recover().(type) {
			case nil, forbidden, exited:
			default:
				t.Fatalf("%s panicked: %v", function.name, r)
			}
			g.log.end()
		}()
		function.call(g, g.guest.Memory(), stack)
		if function.Results == i32 && stack[0] > 76 {
			t.Fatalf("%s gave error number %d", function.name, stack[0])
		}
	})
}
