package engine

import (
	"fmt"
	"strings"
)

// Types of values, as the binary format writes them.
const (
	typeI32       = 0x7f
	typeI64       = 0x7e
	typeF32       = 0x7d
	typeF64       = 0x7c
	typeV128      = 0x7b
	typeFuncref   = 0x70
	typeExternref = 0x6f
	typeFunction  = 0x60
)

// signature is a function type: one byte a value. Two are equal when == says so.
type signature struct{ params, results string }

func (s signature) String() string {
	return "(" + valueTypeNames(s.params) + ") -> (" + valueTypeNames(s.results) + ")"
}

func valueTypeNames(types string) string {
	names := make([]string, len(types))
	for i := range types {
		names[i] = valueTypeName(types[i])
	}
	return strings.Join(names, ", ")
}

func valueTypeName(t byte) string {
	switch t {
	case typeI32:
		return "i32"
	case typeI64:
		return "i64"
	case typeF32:
		return "f32"
	case typeF64:
		return "f64"
	case typeV128:
		return "v128"
	case typeFuncref:
		return "funcref"
	case typeExternref:
		return "externref"
	}
	return ""
}

func (c *cursor) valueType(what string) byte {
	t := c.byte(what)
	if c.ok() && valueTypeName(t) == "" {
		c.refuse("%s has type 0x%02x, which is not supported; build without garbage collection and other proposals beyond WebAssembly 2.0", what, t)
	}
	return t
}

func (c *cursor) referenceType(what string) byte {
	t := c.byte(what)
	if c.ok() && t != typeFuncref && t != typeExternref {
		c.refuse("%s has type 0x%02x; only funcref and externref are supported", what, t)
	}
	return t
}

func (m *parsedModule) readTypes(c *cursor) {
	n := c.count("types", maxTypes)
	for i := 0; i < n && c.ok(); i++ {
		c.where = fmt.Sprintf("type %d", i)
		if form := c.byte("a type"); c.ok() && form != typeFunction {
			c.refuse("form 0x%02x is not supported; build without garbage collection and other proposals beyond WebAssembly 2.0", form)
		}
		params := c.valueTypes("a parameter", "parameters", maxParameters)
		results := c.valueTypes("a result", "results", maxResults)
		m.types = append(m.types, signature{params, results})
	}
}

func (c *cursor) valueTypes(one, many string, limit int) string {
	n := c.count(many, limit)
	start := c.pos
	for i := 0; i < n; i++ {
		c.valueType(one)
	}
	if !c.ok() {
		return ""
	}
	return string(c.data[start:c.pos])
}

// typeIndex reads the index of a function type that the module has.
func (m *parsedModule) typeIndex(c *cursor) uint32 {
	index := c.u32("a type index")
	if c.ok() && int64(index) >= int64(len(m.types)) {
		c.damaged(fmt.Sprintf("no type %d", index))
	}
	return index
}

func (m *parsedModule) readFunctions(c *cursor) {
	n := c.count("functions", maxFunctions)
	m.functions = make([]uint32, 0, n)
	for i := 0; i < n && c.ok(); i++ {
		m.functions = append(m.functions, m.typeIndex(c))
	}
}

// resizable reads the bounds of a table or memory.
func (c *cursor) resizable() (r resizable) {
	flags := c.byte("the kind of bounds")
	switch {
	case !c.ok():
	case flags&0x02 != 0:
		c.refuse("shared memory is not allowed; build without threads")
	case flags&0x04 != 0:
		c.refuse("64-bit memory is not supported; build for wasm32")
	case flags > 1:
		c.damaged("unknown kind of bounds")
	}
	r.min = c.u32("a minimum")
	if flags == 1 {
		r.hasMax = true
		r.max = c.u32("a maximum")
		if c.ok() && r.max < r.min {
			c.damaged("a maximum below the minimum")
		}
	}
	return r
}

func (m *parsedModule) readTables(c *cursor) {
	limit := uint32(m.limits.TableElements)
	n := c.count("tables", maxTables)
	for i := 0; i < n && c.ok(); i++ {
		c.where = fmt.Sprintf("table %d", i)
		t := table{element: c.referenceType("the element"), resizable: c.resizable()}
		if c.ok() && (t.min > limit || t.hasMax && t.max > limit) {
			c.refuse("%d to %d elements, limit %d; declare a smaller table", t.min, max(t.min, t.max), limit)
		}
		if !t.hasMax {
			t.max = limit
		}
		m.tables = append(m.tables, t)
	}
}

const pageBytes = 1 << 16

func (m *parsedModule) readMemory(c *cursor) {
	limit := uint32(m.limits.MemoryBytes / pageBytes)
	n := c.count("memories", 1)
	if n == 0 || !c.ok() {
		return
	}
	r := c.resizable()
	switch {
	case !c.ok():
	case r.min > limit:
		c.refuse("the memory starts at %d pages of 64 KiB, limit %d; use less static data or a smaller stack", r.min, limit)
	case r.hasMax && r.max > limit:
		c.refuse("the memory's maximum is %d pages of 64 KiB, limit %d; declare no maximum or a smaller one", r.max, limit)
	}
	if !r.hasMax {
		r.max = limit
	}
	m.memory = &r
}
