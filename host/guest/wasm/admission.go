package wasm

import (
	"fmt"
	"strings"

	"github.com/hostd/hostd/abi"
)

// AdmissionError reports why a module is rejected: the first fault, its place
// and what to do about it. The text is for the module's author. It may contain
// names from the module, shortened and quoted, but nothing about the host.
type AdmissionError struct {
	Where  string // "header", "import 4 (env.abort)", "function body 17"
	Reason string
}

func (e *AdmissionError) Error() string { return "module refused: " + e.Where + ": " + e.Reason }

// Refuse returns an AdmissionError; format and args are its reason.
func Refuse(where, format string, args ...any) *AdmissionError {
	return &AdmissionError{Where: where, Reason: fmt.Sprintf(format, args...)}
}

// Bounds of a module's shape that the limits of the guest contract do not
// cover. Each is far above what toolchains produce (a Go guest with a protobuf
// runtime has 4,108 functions and 22,507 data segments), and together they keep
// the runtime's data for a module proportional to the module.
const (
	maxTypes        = 10_000
	maxParameters   = 128
	maxResults      = 32
	maxImports      = 256
	maxFunctions    = 32_768
	maxTables       = 8
	maxGlobals      = 10_000
	maxExports      = 4_096
	maxSegments     = 4_096  // number of element segments
	maxElements     = 65_536 // elements of all segments together: as many as a table may have
	maxDataSegments = 100_000
	maxNameBytes    = 1_024
)

// Description describes a module, as far as that is possible without running
// it.
type Description struct {
	Bytes          int      // size of the uploaded module
	Functions      int      // defined in the module
	LargestBody    int      // bytes of the largest function body
	Imports        []string // "module.name", in the module's order
	Exports        []string // names in the module's order
	MemoryMinPages uint32
	MemoryMaxPages uint32 // maximum after the node's limit was applied
	HeldBytes      int64  // maximum an instance holds besides its memory and the fixed cost of every instance
}

// Rules are the requirements on a module.
type Rules struct {
	Limits abi.Limits // limits of the module's shape
	// Exports are the functions that a module must export, together with its
	// memory, in the order in which missing ones are reported. If it is empty,
	// nothing is required.
	Exports []ExportedFunction
	// Optional are functions that a module may export. A module that exports
	// such a function with a different signature is rejected.
	Optional []ExportedFunction
	// Importable returns the signature of a function that modules may import,
	// and whether it exists. If Importable is nil, a module may import any
	// function; this is meant for modules that are only transformed and not
	// run.
	Importable func(module, name string) (Signature, bool)
}

// Admit checks a module against the rules without compiling or running it, and
// passes its functions to r. The returned module keeps source, which must not
// change. The error is an *AdmissionError.
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

// Describe returns the description of the module.
func (m *Module) Describe() *Description {
	d := &Description{
		Bytes:          len(m.Source),
		Functions:      len(m.Functions),
		MemoryMinPages: m.Memory.Min,
		MemoryMaxPages: m.Memory.Max,
		HeldBytes:      m.heldBytes(),
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

// maxText bounds texts that originate from a module or its compilation.
const maxText = 256 // maximum in bytes

// Shorten makes a text from a module safe for logs and messages: it keeps at
// most 256 bytes and makes them valid UTF-8.
func Shorten(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}
