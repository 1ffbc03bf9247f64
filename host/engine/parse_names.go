package engine

import (
	"fmt"

	"github.com/hostd/hostd/abi"
)

func (m *parsedModule) readImports(c *cursor) {
	n := c.count("imports", maxImports)
	for i := 0; i < n && c.ok(); i++ {
		c.where = fmt.Sprintf("import %d", i)
		imp := imported{module: c.name("the module's name", maxNameBytes)}
		imp.name = c.name("the name", maxNameBytes)
		c.where = fmt.Sprintf("import %d (%s.%s)", i, printable(imp.module), printable(imp.name))
		if kind := c.byte("its kind"); c.ok() && kind != kindFunction {
			c.refuse("a module may import functions only; define its memory, tables and globals inside")
		}
		imp.typeIndex = m.typeIndex(c)
		if c.ok() {
			m.checkImport(c, imp)
		}
		m.imports = append(m.imports, imp)
	}
}

func (m *parsedModule) checkImport(c *cursor, imp imported) {
	function, listed := hostFunctionFor(imp.module, imp.name)
	got := m.types[imp.typeIndex]
	switch {
	case listed && got == function.signature:
	case listed:
		c.refuse("has signature %v, must be %v; build for this version of the contract", got, function.signature)
	case imp.module == abi.ImportModule:
		c.refuse("the host has no such function; it has log, now and random")
	case imp.module == abi.ImportWASI:
		c.refuse("this system function is not offered; a guest has no files, sockets or processes")
	default:
		c.refuse("the host offers only the modules %q and %q; build for WASI preview 1 or without a system interface", abi.ImportModule, abi.ImportWASI)
	}
}

// Kinds of imports and exports.
const (
	kindFunction = iota
	kindTable
	kindMemory
	kindGlobal
)

var kindNames = [...]string{"function", "table", "memory", "global"}

func (m *parsedModule) readExports(c *cursor) {
	n := c.count("exports", maxExports)
	seen := make(map[string]bool, n)
	for i := 0; i < n && c.ok(); i++ {
		c.where = fmt.Sprintf("export %d", i)
		name := c.name("the name", maxNameBytes)
		c.where = fmt.Sprintf("export %d (%s)", i, printable(name))
		kind, index := c.byte("its kind"), c.u32("its index")
		switch {
		case !c.ok():
		case int(kind) >= len(kindNames):
			c.damaged("unknown kind of export")
		case int64(index) >= int64(m.spaceSize(kind)):
			c.damaged(fmt.Sprintf("no %s %d", kindNames[kind], index))
		case seen[name]:
			c.refuse("the name is exported twice")
		case reservedName(name):
			c.refuse("names beginning __fuel, and __g with a number, are reserved for the host; rename it")
		}
		seen[name] = true
		m.exports = append(m.exports, export{name, kind, index})
	}
}

// spaceSize is the number of things of a kind that an index may name.
func (m *parsedModule) spaceSize(kind byte) int {
	switch kind {
	case kindFunction:
		return len(m.imports) + len(m.functions)
	case kindTable:
		return len(m.tables)
	case kindMemory:
		if m.memory != nil {
			return 1
		}
	case kindGlobal:
		return m.globals
	}
	return 0
}

// reservedName reports whether an export would clash with what the host adds
// to a module when it rewrites it. Toolchains export names such as __heap_base
// and __global_base, which are not reserved.
func reservedName(name string) bool {
	const fuel, global = "__fuel", "__g"
	if len(name) >= len(fuel) && name[:len(fuel)] == fuel {
		return true
	}
	return len(name) > len(global) && name[:len(global)] == global && name[len(global)] >= '0' && name[len(global)] <= '9'
}

// printable quotes what of a name may not stand in a line of text, and
// shortens it.
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

// customNames is the custom section that names functions; of the subsections
// only the one with function names is kept.
const (
	customNames       = "name"
	functionNamesPart = 1
)

// readCustom looks for function names, which make a trap readable. A custom
// section never refuses a module: one that is malformed is left out, as the
// format asks, and so are all others.
func (m *parsedModule) readCustom(c *cursor) *AdmissionError {
	if c.name("the name", maxNameBytes) != customNames || !c.ok() {
		return nil
	}
	for c.ok() && c.left() > 0 {
		part := c.byte("a part")
		size := c.u32("its size")
		start := c.skip(size, "a part")
		if c.ok() && part == functionNamesPart && m.wellFormedNames(stretch{start, c.pos}) {
			m.names = stretch{start, c.pos}
		}
	}
	return nil
}

func (m *parsedModule) wellFormedNames(names stretch) bool {
	c := &cursor{data: m.wasm, pos: names.start, end: names.end}
	n := c.count("names", maxFunctions+maxImports)
	for i := 0; i < n && c.ok(); i++ {
		c.u32("a function index")
		c.name("a function's name", maxFunctionNameBytes)
	}
	c.done()
	return c.ok()
}

// maxFunctionNameBytes is generous: C++ and Rust mangle whole types into names.
const maxFunctionNameBytes = 16 << 10
