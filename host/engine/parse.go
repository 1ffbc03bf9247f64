package engine

import (
	"bytes"
	"strconv"

	"github.com/hostd/hostd/abi"
)

// Ids of the sections of a module.
const (
	sectionCustom = iota
	sectionType
	sectionImport
	sectionFunction
	sectionTable
	sectionMemory
	sectionGlobal
	sectionExport
	sectionStart
	sectionElement
	sectionCode
	sectionData
	sectionDataCount
	sectionTag
)

var sectionNames = [...]string{"custom", "type", "import", "function", "table", "memory", "global",
	"export", "start", "element", "code", "data", "data count", "tag"}

// sectionOrder is the place of each section in a file. The data count section
// was added to the format late, and comes before the code.
var sectionOrder = [...]int{sectionType: 1, sectionImport: 2, sectionFunction: 3, sectionTable: 4,
	sectionMemory: 5, sectionGlobal: 6, sectionExport: 7, sectionStart: 8, sectionElement: 9,
	sectionDataCount: 10, sectionCode: 11, sectionData: 12}

// stretch is a part of the module: [start, end).
type stretch struct{ start, end int }

type section struct {
	id      byte
	payload stretch
}

// resizable is the bounds of a table or of the memory.
type resizable struct {
	min, max uint32
	hasMax   bool // as uploaded; max is set either way
}

type table struct {
	element byte
	resizable
}

type export struct {
	name  string
	kind  byte
	index uint32
}

type imported struct {
	module, name string
	typeIndex    uint32
}

// parsedModule is a module whose shape has been checked: every section is in
// its place, every count is bounded and every index that the host relies on
// is in range. Of the instructions only what rewriting needs is checked: the
// runtime validates the rest.
type parsedModule struct {
	wasm      []byte
	sections  []section // without custom ones
	types     []signature
	imports   []imported
	functions []uint32 // type index of each defined function
	tables    []table
	memory    *resizable
	globals   int
	mutable   []uint32 // globals of numbers that can change
	opaque    bool     // its instances have state that cannot be copied
	exports   []export
	bodies    []stretch // locals and instructions of each defined function
	dataCount int       // -1 without a data count section
	names     stretch   // well-formed function names of the name section, or empty

	plans     []bodyPlan      // how each defined function is metered
	points    int             // of all plans
	named     map[uint32]bool // functions that exports, tables or references name
	bulk      []bulkUse       // bulk instructions in use, each once
	bulkIndex map[bulkUse]int
	frames    []frame // spare memory of planBody

	limits abi.Limits
}

var (
	wasmMagic   = []byte("\x00asm")
	wasmVersion = []byte{1, 0, 0, 0}
)

// parseModule reads the binary format as far as admission needs it. It never
// panics, and its work and memory are bounded by the size of wasm.
func parseModule(wasm []byte, limits abi.Limits) (*parsedModule, *AdmissionError) {
	if len(wasm) > limits.ModuleBytes {
		return nil, refuse("size", "%d bytes, limit %d; strip debug information or split the module", len(wasm), limits.ModuleBytes)
	}
	if len(wasm) < 8 || !bytes.Equal(wasm[:4], wasmMagic) {
		return nil, refuse("header", "not a WebAssembly module; upload the binary .wasm file")
	}
	if !bytes.Equal(wasm[4:8], wasmVersion) {
		if wasm[6] == 1 {
			return nil, refuse("header", "this is a component; upload the core module inside it")
		}
		return nil, refuse("header", "unknown version of WebAssembly; build for version 1")
	}
	m := &parsedModule{wasm: wasm, limits: limits, dataCount: -1}
	c := &cursor{data: wasm, pos: 8, end: len(wasm), where: "sections"}
	for last := 0; c.ok() && c.left() > 0; {
		s := readSection(c, &last)
		if !c.ok() {
			break
		}
		if c.fault = m.readPayload(s); c.fault == nil && s.id != sectionCustom {
			m.sections = append(m.sections, s)
		}
	}
	if c.fault == nil {
		c.fault = m.checkWhole()
	}
	if c.fault != nil {
		return nil, c.fault
	}
	m.shareCosts()
	return m, nil
}

// readSection reads a section's header and steps over its payload.
func readSection(c *cursor, last *int) section {
	id := c.byte("a section id")
	if c.ok() && id == sectionTag {
		c.refuse("exception handling is not supported; build without it")
	}
	if c.ok() && int(id) >= len(sectionNames) {
		c.damaged("unknown section " + strconv.Itoa(int(id)))
	}
	if c.ok() && id != sectionCustom {
		if order := sectionOrder[id]; order <= *last {
			c.refuse("the %s section is twice there or out of order; build the module again", sectionNames[id])
		} else {
			*last = order
		}
	}
	size := c.u32("a section's size")
	start := c.skip(size, "a section")
	return section{id: id, payload: stretch{start, c.pos}}
}

func (m *parsedModule) readPayload(s section) *AdmissionError {
	c := &cursor{data: m.wasm, pos: s.payload.start, end: s.payload.end, where: sectionNames[s.id] + " section"}
	switch s.id {
	case sectionCustom:
		return m.readCustom(c)
	case sectionType:
		m.readTypes(c)
	case sectionImport:
		m.readImports(c)
	case sectionFunction:
		m.readFunctions(c)
	case sectionTable:
		m.readTables(c)
	case sectionMemory:
		m.readMemory(c)
	case sectionGlobal:
		m.readGlobals(c)
	case sectionExport:
		m.readExports(c)
	case sectionStart:
		c.refuse("a start function is not allowed; export _initialize instead (AssemblyScript: --exportStart _initialize)")
	case sectionElement:
		m.readElements(c)
	case sectionDataCount:
		m.dataCount = c.number("data segments", maxDataSegments)
	case sectionCode:
		m.readCode(c)
	case sectionData:
		m.readData(c)
	}
	c.done()
	return c.fault
}

// checkWhole checks what only the whole file shows.
func (m *parsedModule) checkWhole() *AdmissionError {
	if len(m.bodies) != len(m.functions) {
		return refuse("code section", "the file is damaged: %d functions are declared and %d have a body; build it again",
			len(m.functions), len(m.bodies))
	}
	if m.memory == nil {
		return refuse("memory section", "the module has no memory; it must define one and export it as %q", abi.ExportMemory)
	}
	return nil
}

// functionType returns the signature of a function by its index in the index
// space of functions, imports first.
func (m *parsedModule) functionType(index uint32) (signature, bool) {
	if int64(index) < int64(len(m.imports)) {
		return m.types[m.imports[index].typeIndex], true
	}
	index -= uint32(len(m.imports))
	if int64(index) >= int64(len(m.functions)) {
		return signature{}, false
	}
	return m.types[m.functions[index]], true
}
