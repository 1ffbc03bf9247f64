package wasm

import (
	"bytes"
	"strconv"

	"github.com/hostd/hostd/abi"
)

// Section ids of a module.
const (
	SectionCustom = iota
	SectionType
	SectionImport
	SectionFunction
	SectionTable
	SectionMemory
	SectionGlobal
	SectionExport
	SectionStart
	SectionElement
	SectionCode
	SectionData
	SectionDataCount
	SectionTag
)

var sectionNames = [...]string{"custom", "type", "import", "function", "table", "memory", "global",
	"export", "start", "element", "code", "data", "data count", "tag"}

// sectionOrder is the position of each section in a file. The data count
// section was added to the format later and comes before the code section.
var sectionOrder = [...]int{SectionType: 1, SectionImport: 2, SectionFunction: 3, SectionTable: 4,
	SectionMemory: 5, SectionGlobal: 6, SectionExport: 7, SectionStart: 8, SectionElement: 9,
	SectionDataCount: 10, SectionCode: 11, SectionData: 12}

// Stretch is a range of the module: [Start, End).
type Stretch struct{ Start, End int }

// section is one section of a module.
type section struct {
	id      byte
	payload Stretch
}

// Resizable is the bounds of a table, in elements, or of a memory, in pages.
type Resizable struct {
	Min, Max uint32
	hasMax   bool // the upload declared a maximum; Max is always set
}

// Table is a table of the module.
type Table struct {
	Element byte // element type
	Resizable
}

// Export is an export of the module.
type Export struct {
	Name  string
	Kind  byte
	Index uint32 // index in the index space of its kind
}

// Import is a function that the module imports.
type Import struct {
	Module, Name string
	TypeIndex    uint32
}

// Module is a module whose shape has been checked: every section is in its
// place, every count is bounded, and every index that the host relies on is in
// range. Instructions are checked only as far as rewriting requires; the
// runtime validates the rest. A Module must not be modified.
type Module struct {
	Source    []byte    // the module as uploaded
	sections  []section // all sections except custom ones
	Types     []Signature
	Imports   []Import
	Functions []uint32 // type index of each defined function
	Tables    []Table
	Memory    *Resizable
	Globals   int      // number of globals
	Mutable   []uint32 // mutable globals of numeric types
	Exports   []Export
	Bodies    []Stretch // locals and instructions of each defined function
	DataCount int       // -1 without a data count section
	Names     Stretch   // well-formed function names of the name section, or empty

	segments         []elementSegment // element segments
	globalReferences int              // number of globals initialized with references to functions
	data             int              // number of data segments given to the runtime
	opaque           bool             // instances have state that cannot be copied
	uses

	work int64 // estimated work of compiling the functions read so far

	rules  Rules
	limits abi.Limits
	reader Reader
	spare  []byte // reusable memory of readInstructions
}

// The first 8 bytes of a module.
var (
	Magic   = []byte("\x00asm")
	Version = []byte{1, 0, 0, 0}
)

// parseModule reads the binary format as far as admission needs it. It never
// panics, and the size of source bounds its work and memory.
func parseModule(source []byte, rules Rules, r Reader) (*Module, *AdmissionError) {
	limits := rules.Limits
	if len(source) > limits.ModuleBytes {
		return nil, Refuse("size", "%d bytes, limit %d; strip debug information or split the module", len(source), limits.ModuleBytes)
	}
	if len(source) < 8 || !bytes.Equal(source[:4], Magic) {
		return nil, Refuse("header", "not a WebAssembly module; upload the binary .wasm file")
	}
	if !bytes.Equal(source[4:8], Version) {
		if source[6] == 1 {
			return nil, Refuse("header", "this is a component; upload the core module inside it")
		}
		return nil, Refuse("header", "unknown version of WebAssembly; build for version 1")
	}
	m := &Module{Source: source, rules: rules, limits: limits, reader: r, DataCount: -1}
	c := &Cursor{data: source, Pos: 8, end: len(source), where: "sections"}
	for last := 0; c.OK() && c.Remaining() > 0; {
		s := readSection(c, &last)
		if !c.OK() {
			break
		}
		if c.fault = m.readPayload(s); c.fault == nil && s.id != SectionCustom {
			m.sections = append(m.sections, s)
		}
	}
	if c.fault == nil {
		c.fault = m.checkWhole()
	}
	if c.fault != nil {
		return nil, c.fault
	}
	return m, nil
}

// readSection reads a section's header and skips its payload.
func readSection(c *Cursor, last *int) section {
	id := c.Byte("a section id")
	if c.OK() && id == SectionTag {
		c.Refuse("exception handling is not supported; build without it")
	}
	if c.OK() && int(id) >= len(sectionNames) {
		c.refuseDamaged("unknown section " + strconv.Itoa(int(id)))
	}
	if c.OK() && id != SectionCustom {
		if order := sectionOrder[id]; order <= *last {
			c.Refuse("the %s section is duplicated or out of order; build the module again", sectionNames[id])
		} else {
			*last = order
		}
	}
	size := c.U32("a section's size")
	start := c.Skip(size, "a section")
	return section{id: id, payload: Stretch{start, c.Pos}}
}

func (m *Module) readPayload(s section) *AdmissionError {
	c := &Cursor{data: m.Source, Pos: s.payload.Start, end: s.payload.End, where: sectionNames[s.id] + " section"}
	switch s.id {
	case SectionCustom:
		return m.readCustom(c)
	case SectionType:
		m.readTypes(c)
	case SectionImport:
		m.readImports(c)
	case SectionFunction:
		m.readFunctions(c)
	case SectionTable:
		m.readTables(c)
	case SectionMemory:
		m.readMemory(c)
	case SectionGlobal:
		m.readGlobals(c)
	case SectionExport:
		m.readExports(c)
	case SectionStart:
		c.Refuse("a start function is not allowed; export _initialize instead (AssemblyScript: --exportStart _initialize)")
	case SectionElement:
		m.readElements(c)
	case SectionDataCount:
		m.DataCount = c.number("data segments", maxDataSegments)
	case SectionCode:
		m.readCode(c)
	case SectionData:
		m.readData(c)
	}
	c.done()
	return c.fault
}

// checkWhole makes the checks that need the whole file.
func (m *Module) checkWhole() *AdmissionError {
	if len(m.Bodies) != len(m.Functions) {
		return Refuse("code section", "the file is damaged: it declares %d functions, but has %d bodies; build it again",
			len(m.Functions), len(m.Bodies))
	}
	if m.Memory == nil {
		return Refuse("memory section", "the module has no memory; it must define one and export it as %q", abi.ExportMemory)
	}
	return nil
}

// FunctionType returns the signature of a function by its index, imports first.
func (m *Module) FunctionType(index uint32) (Signature, bool) {
	if int64(index) < int64(len(m.Imports)) {
		return m.Types[m.Imports[index].TypeIndex], true
	}
	index -= uint32(len(m.Imports))
	if int64(index) >= int64(len(m.Functions)) {
		return Signature{}, false
	}
	return m.Types[m.Functions[index]], true
}

// Payload returns the uploaded payload of a section, or nil if it does not
// exist.
func (m *Module) Payload(id byte) []byte {
	for _, s := range m.sections {
		if s.id == id {
			return m.Source[s.payload.Start:s.payload.End]
		}
	}
	return nil
}

// Part returns a cursor over a part of the module.
func (m *Module) Part(s Stretch) *Cursor {
	return &Cursor{data: m.Source, Pos: s.Start, end: s.End}
}
