package engine

import (
	"context"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// FuzzAdmit feeds arbitrary bytes to the parser and the rewriter: neither may
// panic, and the runtime takes the rewritten module exactly when it takes the
// module as it came.
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
		original, rewritten := takes(runtime, wasm), takes(runtime, prepare(m))
		if (original == nil) != (rewritten == nil) {
			t.Fatalf("the runtime says of the module %v, and of the rewritten one %v", original, rewritten)
		}
	})
}

// takes is the runtime's word on a module.
func takes(runtime wazero.Runtime, wasm []byte) error {
	e := &Engine{runtime: runtime}
	compiled, err := e.compileContained(context.Background(), wasm)
	if err != nil {
		return err
	}
	return compiled.Close(context.Background())
}
