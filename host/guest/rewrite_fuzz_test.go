package guest

import (
	"bytes"
	"context"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// FuzzAdmit feeds arbitrary bytes to the parser and the rewriter. Neither may
// panic, and the runtime must accept the rewritten module exactly if it accepts
// the original one.
func FuzzAdmit(f *testing.F) {
	f.Add([]byte(nil))
	f.Add((&testGuest{}).build())
	f.Add(wideGuest().build())
	f.Add(asmModule(asmSection(sectionCustom, cat(text("name"), []byte{1, 5}, uleb(1<<32-1)))))
	limits := abi.DefaultLimits()
	runtime := wazero.NewRuntimeWithConfig(context.Background(), wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2))
	f.Fuzz(func(t *testing.T, wasm []byte) {
		m, err := admit(wasm, limits)
		if err != nil {
			if _, ok := err.(*AdmissionError); !ok {
				t.Fatalf("error is %T", err)
			}
			return
		}
		original, rewritten := takes(runtime, withoutCustom(wasm)), takes(runtime, m.Prepare())
		if (original == nil) != (rewritten == nil) {
			t.Fatalf("the runtime says of the module %v, and of the rewritten one %v", original, rewritten)
		}
	})
}

// withoutCustom removes the custom sections of an admitted module. Admission
// ignores malformed ones, as the format requires, but the runtime rejects them.
func withoutCustom(wasm []byte) []byte {
	out := bytes.Clone(wasm[:8])
	c := cursorAt(wasm, 8)
	for c.Remaining() > 0 {
		start := c.Pos
		id := c.Byte("an id")
		c.Skip(c.U32("a size"), "a section")
		if id != sectionCustom {
			out = append(out, wasm[start:c.Pos]...)
		}
	}
	return out
}

// takes compiles a module and returns the runtime's error, or nil.
func takes(runtime wazero.Runtime, wasm []byte) error {
	e := &Engine{runtime: runtime}
	compiled, err := e.compileContained(context.Background(), wasm)
	if err != nil {
		return err
	}
	return compiled.Close(context.Background())
}

// FuzzBody feeds arbitrary instructions. The runtime must accept them metered
// exactly if it accepts them unmetered, and if the metered code ends by itself,
// both must give the same results.
func FuzzBody(f *testing.F) {
	f.Add([]byte{})
	f.Add(cat(get(0), op(opDrop)))
	f.Add(cat(op(opLoop, []byte{blockVoid}), op(opGlobalGet, uleb(0)), op(opI32Eqz), op(opBrIf, uleb(0)), []byte{opEnd}))
	f.Add(cat([]byte{opVector, 12}, make([]byte, 16), []byte{opVector, 0x15, 3}, op(opDrop)))
	f.Add(cat([]byte{opVector, 12}, make([]byte, 16), []byte{opVector, 0xa1, 1}, op(opDrop)))
	f.Add(cat(i32c(1), i32c(2), i32c(3), []byte{opMisc, miscMemoryInit, 0, 0}, []byte{opMisc, miscDataDrop, 0}))
	f.Add(cat(i32c(1), i32c(2), i32c(1), []byte{opMisc, miscTableCopy, 0, 0}, op(opRefFunc, uleb(8)), i32c(1), []byte{opMisc, miscTableGrow, 0}, op(opDrop)))
	f.Add(cat(op(opRefFunc, uleb(0)), op(opDrop))) // refers to a function that the module names nowhere else
	f.Add(cat(bytes.Repeat(op(opBlock, []byte{blockVoid}), 7), i32c(1),
		op(opBrTable, vec(uleb(0), uleb(1), uleb(2), uleb(3), uleb(4), uleb(5)), uleb(6)), bytes.Repeat([]byte{opEnd, opNop}, 7)))
	e, err := New(f.Context(), Options{Interpreter: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, code []byte) {
		if len(code) > 4096 {
			return // other tests check the bounds
		}
		guest := wideGuest()
		guest.bodies[abi.ExportDrop] = code
		guest.locals = map[string][]byte{abi.ExportDrop: vec(cat(uleb(2), []byte{typeI32}), cat(uleb(1), []byte{typeI64}), cat(uleb(1), []byte{typeV128}))}
		wasm := guest.build()
		parsed, refused := admit(wasm, e.limits)
		if refused != nil {
			return
		}
		prepared := parsed.Prepare()
		original, rewritten := takes(e.runtime, withoutCustom(wasm)), takes(e.runtime, prepared)
		if (original == nil) != (rewritten == nil) {
			t.Fatalf("the runtime says of the code %v, and of the rewritten one %v", original, rewritten)
		}
		if original != nil {
			return
		}
		compiled, err := e.compilePrepared(t.Context(), prepared)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.retain(); err != nil {
			t.Fatal(err)
		}
		m := &Module{engine: e, compiled: compiled, description: parsed.Describe(), logger: e.logger, users: 1}
		defer m.Close()
		compareMutated(t, m, wasm)
	})
}
