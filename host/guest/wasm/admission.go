package wasm

import (
	"fmt"
	"strings"

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

// Refuse makes an AdmissionError; format and args are its reason.
func Refuse(where, format string, args ...any) *AdmissionError {
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
	maxSegments     = 4_096  // of elements
	maxElements     = 65_536 // of all segments: as many as a table has
	maxDataSegments = 100_000
	maxNameBytes    = 1_024
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
	HeldBytes      int64  // that an instance holds at most besides its memory, beyond what each does
}

// Rules are what modules are held to.
type Rules struct {
	Limits abi.Limits // those of a module's shape
	// Exports are the functions that a module must export, and its memory with
	// them, in the order in which a missing one is reported. None asks for
	// nothing.
	Exports []ExportedFunction
	// Optional are functions that it may export; with other signatures it is
	// refused.
	Optional []ExportedFunction
	// Importable is the signature of a function that a module may import, and
	// whether there is one. Without it a module may import any function: it is
	// read to be made into another, not to be run.
	Importable func(module, name string) (Signature, bool)
}

// Admit checks a module against the guest contract and the rules without
// compiling or running any of it, and tells r of its functions. The module
// keeps source, which must not change. The error is an *AdmissionError.
func Admit(source []byte, rules Rules, r Reader) (*Module, error) {
	m, fault := parseModule(source, rules, r)
	if fault == nil && len(rules.Exports) > 0 {
		fault = checkExports(m, rules.Exports, rules.Optional)
	}
	if fault != nil {
		return nil, fault
	}
	return m, nil
}

// Describe returns what admission found out.
func (m *Module) Describe() *Description {
	d := &Description{
		Bytes:          len(m.Source),
		Functions:      len(m.Functions),
		MemoryMinPages: m.Memory.Min,
		MemoryMaxPages: m.Memory.Max,
		HeldBytes:      m.held(),
	}
	for _, imp := range m.Imports {
		d.Imports = append(d.Imports, imp.Module+"."+imp.Name)
	}
	for _, exp := range m.Exports {
		d.Exports = append(d.Exports, exp.Name)
	}
	for _, body := range m.Bodies {
		d.LargestBody = max(d.LargestBody, body.End-body.Start)
	}
	return d
}

// maxText bounds a text that a module or its compilation is the origin of.
const maxText = 256 // bytes

// Shorten makes such a text fit for a log and for a message: at most 256 bytes
// of it, and valid UTF-8.
func Shorten(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}
