package guest

import (
	"context"
	"fmt"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/tetratelabs/wazero"
)

// compiledModule is a module as the runtime compiled it, and its data segments,
// which the runtime does not get.
type compiledModule struct {
	wazero.CompiledModule
	data []wasm.Segment
}

// compilePrepared compiles a prepared module without its data segments.
func (e *Engine) compilePrepared(ctx context.Context, prepared []byte) (*compiledModule, error) {
	code, data := wasm.CutData(prepared)
	compiled, err := e.compileContained(ctx, code)
	if err != nil {
		return nil, err
	}
	return &compiledModule{compiled, data}, nil
}

// writeData initializes memory with the module's data segments, as the runtime
// would.
func (g *Instance) writeData() error {
	memory := g.guest.Memory()
	for i, s := range g.module.compiled.data {
		if !memory.Write(s.Offset, s.Data) {
			return faultOf(abi.ExportInitialize, fmt.Errorf("data[%d]: out of bounds memory access", i))
		}
	}
	return nil
}
