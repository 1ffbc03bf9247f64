package wasm

import (
	"fmt"

	"github.com/hostd/hostd/abi"
)

func (m *Module) readImports(c *Cursor) {
	n := c.count("imports", maxImports)
	for i := 0; i < n && c.OK(); i++ {
		c.where = fmt.Sprintf("import %d", i)
		imp := Import{Module: c.name("the module's name", maxNameBytes)}
		imp.Name = c.name("the name", maxNameBytes)
		c.where = fmt.Sprintf("import %d (%s.%s)", i, printable(imp.Module), printable(imp.Name))
		if kind := c.Byte("its kind"); c.OK() && kind != KindFunction {
			c.Refuse("a module may import functions only; define its memory, tables and globals inside")
		}
		imp.TypeIndex = m.typeIndex(c)
		if c.OK() {
			m.checkImport(c, imp)
		}
		m.Imports = append(m.Imports, imp)
	}
}

func (m *Module) checkImport(c *Cursor, imp Import) {
	if m.rules.Importable == nil {
		return
	}
	want, listed := m.rules.Importable(imp.Module, imp.Name)
	got := m.Types[imp.TypeIndex]
	switch {
	case listed && got == want:
	case listed:
		c.Refuse("has signature %v, must be %v; build for this version of the ABI", got, want)
	case imp.Module == abi.ImportModule:
		c.Refuse("the host has no such function; it has log, now and random")
	case imp.Module == abi.ImportWASI:
		c.Refuse("this system function is not offered; a guest has no files, sockets or processes")
	default:
		c.Refuse("the host offers only the modules %q and %q; build for WASI preview 1 or without a system interface", abi.ImportModule, abi.ImportWASI)
	}
}

// Kinds of imports and exports.
const (
	KindFunction = iota
	KindTable
	KindMemory
	KindGlobal
)

var kindNames = [...]string{"function", "table", "memory", "global"}

func (m *Module) readExports(c *Cursor) {
	n := c.count("exports", maxExports)
	seen := make(map[string]bool, n)
	for i := 0; i < n && c.OK(); i++ {
		c.where = fmt.Sprintf("export %d", i)
		name := c.name("the name", maxNameBytes)
		c.where = fmt.Sprintf("export %d (%s)", i, printable(name))
		kind, index := c.Byte("its kind"), c.U32("its index")
		switch {
		case !c.OK():
		case int(kind) >= len(kindNames):
			c.refuseDamaged("unknown kind of export")
		case int64(index) >= int64(m.spaceSize(kind)):
			c.refuseDamaged(fmt.Sprintf("no %s %d", kindNames[kind], index))
		case seen[name]:
			c.Refuse("the name is exported twice")
		case reservedName(name):
			c.Refuse("names that begin with __fuel, or with __g and a number, are reserved for the host; rename it")
		case kind == KindFunction:
			m.nameFunction(index)
		}
		seen[name] = true
		m.Exports = append(m.Exports, Export{name, kind, index})
	}
}

// spaceSize returns the size of a kind's index space.
func (m *Module) spaceSize(kind byte) int {
	switch kind {
	case KindFunction:
		return len(m.Imports) + len(m.Functions)
	case KindTable:
		return len(m.Tables)
	case KindMemory:
		if m.Memory != nil {
			return 1
		}
	case KindGlobal:
		return m.Globals
	}
	return 0
}

// reservedName reports whether an export would conflict with the names that the
// host adds when it rewrites a module. Names that toolchains export, such as
// __heap_base and __global_base, are not reserved.
func reservedName(name string) bool {
	const fuel, global = "__fuel", "__g"
	if len(name) >= len(fuel) && name[:len(fuel)] == fuel {
		return true
	}
	return len(name) > len(global) && name[:len(global)] == global && name[len(global)] >= '0' && name[len(global)] <= '9'
}

// printable shortens a name and quotes it if it contains characters that must
// not appear in a line of text.
func printable(name string) string {
	const limit = 64
	if len(name) > limit {
		name = name[:limit] + "..."
	}
	if quoted := fmt.Sprintf("%q", name); quoted[1:len(quoted)-1] != name {
		return quoted
	}
	return name
}

// CustomNames is the name of the custom section that contains names. Only its
// subsection of function names is kept.
const (
	CustomNames       = "name"
	FunctionNamesPart = 1
)

// readCustom looks for function names, which make traps readable. Custom
// sections never cause a rejection: a malformed section is dropped, as the
// format requires, and so are all other custom sections.
func (m *Module) readCustom(c *Cursor) *AdmissionError {
	if c.name("the name", maxNameBytes) != CustomNames || !c.OK() {
		return nil
	}
	for c.OK() && c.Remaining() > 0 {
		part := c.Byte("a part")
		size := c.U32("its size")
		start := c.Skip(size, "a part")
		if c.OK() && part == FunctionNamesPart && m.wellFormedNames(Stretch{start, c.Pos}) {
			m.Names = Stretch{start, c.Pos}
		}
	}
	return nil
}

// maxNamesBytes bounds the function names that are kept. Those of Go's runtime
// with a protobuf library need 300 KB, and the runtime holds ten times as much
// for them.
const maxNamesBytes = 2 << 20

func (m *Module) wellFormedNames(names Stretch) bool {
	if names.End-names.Start > maxNamesBytes {
		return false
	}
	c := &Cursor{data: m.Source, Pos: names.Start, end: names.End}
	n := c.count("names", maxFunctions+maxImports)
	for i := 0; i < n && c.OK(); i++ {
		c.U32("a function index")
		c.name("a function's name", maxFunctionNameBytes)
	}
	c.done()
	return c.OK()
}

// maxFunctionNameBytes is generous because C++ and Rust mangle whole types into
// names.
const maxFunctionNameBytes = 16 << 10
