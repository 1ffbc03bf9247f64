package engine

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/abi"
)

// AdmissionError says why a module is refused: the first fault found, where it
// is and what to do about it. Its text is for the module's author; it holds
// names from the module, shortened and quoted, and nothing of the host.
type AdmissionError struct {
	Where  string // "header", "import 4 (env.abort)", "function body 17"
	Reason string
}

func (e *AdmissionError) Error() string { return "module refused: " + e.Where + ": " + e.Reason }

func refuse(where, format string, args ...any) *AdmissionError {
	return &AdmissionError{Where: where, Reason: fmt.Sprintf(format, args...)}
}

// Bounds of a module's shape that are not part of the guest contract's limits:
// each is far above what the toolchains produce (a Go guest with a protobuf
// runtime has 4,108 functions and 22,507 data segments) and keeps what the
// runtime builds from a module in proportion to the module.
const (
	maxTypes        = 10_000
	maxParameters   = 128
	maxResults      = 32
	maxImports      = 256
	maxFunctions    = 32_768
	maxTables       = 8
	maxGlobals      = 10_000
	maxExports      = 4_096
	maxElements     = 4_096
	maxDataSegments = 100_000
	maxNameBytes    = 1_024
	maxPoints       = 500_000 // places that are charged: loops, cases of switches, functions
	maxNesting      = 10_000  // of blocks; the Go compiler nests one for each call of a function
)

// Description is what admission found out about a module, before anything of
// it has run.
type Description struct {
	Bytes          int      // of the module as uploaded
	Functions      int      // defined in the module
	LargestBody    int      // bytes of the largest function body
	Imports        []string // "module.name", in the module's order
	Exports        []string // in the module's order
	MemoryMinPages uint32
	MemoryMaxPages uint32 // after the node's limit was written in
	TableBytes     int64  // that an instance's tables hold at most
}

// Admit checks a module against the guest contract and the limits without
// compiling or running any of it. It does not keep wasm. The error is an
// *AdmissionError.
func (e *Engine) Admit(wasm []byte) (*Description, error) {
	m, err := admit(wasm, e.limits)
	if err != nil {
		return nil, err
	}
	return m.describe(), nil
}

// admit is everything that is decided about a module before it is compiled.
func admit(wasm []byte, limits abi.Limits) (*parsedModule, error) {
	m, fault := parseModule(wasm, limits)
	if fault == nil {
		fault = checkExports(m)
	}
	if fault != nil {
		return nil, fault
	}
	return m, nil
}

// elementBytes is what the runtime holds for an element of a table.
const elementBytes = 8

// growsTables reports whether the module has an instruction to.
func (m *parsedModule) growsTables() bool {
	return slices.ContainsFunc(m.bulk, func(u bulkUse) bool { return u.op == opMisc && u.sub == miscTableGrow })
}

func (m *parsedModule) describe() *Description {
	d := &Description{
		Bytes:          len(m.wasm),
		Functions:      len(m.functions),
		MemoryMinPages: m.memory.min,
		MemoryMaxPages: m.memory.max,
	}
	for _, t := range m.tables {
		elements := t.min
		if m.growsTables() {
			elements = t.max
		}
		d.TableBytes += elementBytes * int64(elements)
	}
	for _, imp := range m.imports {
		d.Imports = append(d.Imports, imp.module+"."+imp.name)
	}
	for _, exp := range m.exports {
		d.Exports = append(d.Exports, exp.name)
	}
	for _, body := range m.bodies {
		d.LargestBody = max(d.LargestBody, body.end-body.start)
	}
	return d
}
