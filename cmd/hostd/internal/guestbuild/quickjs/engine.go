package quickjs

import (
	"fmt"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
)

// Modules that the engine imports from.
const (
	moduleEnv  = "env" // functions of its JavaScript wrapper
	moduleWASI = abi.ImportWASI
)

// patch is a call of an imported function in a body of the engine. Its function
// index must be changed.
type patch struct {
	start    int // offset of the instruction in the module
	function uint32
}

// jsEngine is the parsed module of the npm package.
type jsEngine struct {
	*wasm.Module
	exports map[string]uint32 // exported functions
	patches [][]patch         // patches of each body, in order
	reading int               // index of the body that is being read
	fault   error
}

// readEngine parses an engine, and rejects an engine that cannot be extended.
func readEngine(source []byte) (*jsEngine, error) {
	e := &jsEngine{exports: map[string]uint32{}, reading: -1}
	m, err := wasm.Admit(source, wasm.Rules{Limits: abi.DefaultLimits()}, e)
	if err == nil {
		err = e.fault
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the engine: %w", err)
	}
	e.Module = m
	for _, x := range m.Exports {
		if x.Kind == wasm.KindFunction {
			e.exports[x.Name] = x.Index
		}
	}
	for _, i := range m.Imports {
		if i.Module != moduleWASI && i.Module != moduleEnv {
			return nil, fmt.Errorf("the engine imports %s.%s, which guests do not provide", i.Module, i.Name)
		}
	}
	if len(m.Tables) != 1 || m.Memory == nil {
		return nil, fmt.Errorf("the engine must have one table, got %d", len(m.Tables))
	}
	return e, nil
}

// Begin implements wasm.Reader.
func (e *jsEngine) Begin(m *wasm.Module, _ *wasm.Cursor, _ wasm.Function) {
	e.Module = m
	e.reading++
	e.patches = append(e.patches, nil)
}

// Step records calls of imported functions, and rejects instructions that an
// extended module cannot have.
func (e *jsEngine) Step(i *wasm.Instruction, start int) {
	imports := uint32(len(e.Imports))
	switch {
	case i.Op == wasm.OpRefFunc && i.A < imports:
		e.fault = fmt.Errorf("function body %d makes a reference to an import", e.reading)
	case i.Op == wasm.OpMisc && (i.Sub == wasm.MiscMemoryInit || i.Sub == wasm.MiscDataDrop):
		e.fault = fmt.Errorf("function body %d names a data segment", e.reading)
	case i.Op == wasm.OpCall && i.A < imports:
		e.patches[e.reading] = append(e.patches[e.reading], patch{start: start, function: i.A})
	}
}

// End implements wasm.Reader.
func (e *jsEngine) End() {}

// function returns an exported function of the engine, and checks its
// signature.
func (e *jsEngine) function(name string, want wasm.Signature) (uint32, error) {
	index, ok := e.exports[name]
	if !ok {
		return 0, fmt.Errorf("the engine has no function %s", name)
	}
	if got, _ := e.FunctionType(index); got != want {
		return 0, fmt.Errorf("the engine's %s must have the signature %[3]v, got %[2]v", name, got, want)
	}
	return index, nil
}
