package wasm

import (
	"fmt"
	"strings"
)

// Value types, as the binary format encodes them.
const (
	TypeI32       = 0x7f
	TypeI64       = 0x7e
	TypeF32       = 0x7d
	TypeF64       = 0x7c
	TypeV128      = 0x7b
	TypeFuncref   = 0x70
	TypeExternref = 0x6f
	TypeFunction  = 0x60
)

// Numeric types in a Signature.
const (
	I32 = "\x7f"
	I64 = "\x7e"
)

// Signature is a function type with one byte for each value. Equal signatures
// compare equal with ==.
type Signature struct{ Params, Results string }

func (s Signature) String() string {
	return "(" + valueTypeNames(s.Params) + ") -> (" + valueTypeNames(s.Results) + ")"
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
	case TypeI32:
		return "i32"
	case TypeI64:
		return "i64"
	case TypeF32:
		return "f32"
	case TypeF64:
		return "f64"
	case TypeV128:
		return "v128"
	case TypeFuncref:
		return "funcref"
	case TypeExternref:
		return "externref"
	}
	return ""
}

func (c *Cursor) valueType(what string) byte {
	t := c.Byte(what)
	if c.OK() && valueTypeName(t) == "" {
		c.Refuse("%s has type 0x%02x, which is not supported; build without garbage collection and other proposals beyond WebAssembly 2.0", what, t)
	}
	return t
}

func (c *Cursor) referenceType(what string) byte {
	t := c.Byte(what)
	if c.OK() && t != TypeFuncref && t != TypeExternref {
		c.Refuse("%s has type 0x%02x; only funcref and externref are supported", what, t)
	}
	return t
}

func (m *Module) readTypes(c *Cursor) {
	n := c.count("types", maxTypes)
	for i := 0; i < n && c.OK(); i++ {
		c.where = fmt.Sprintf("type %d", i)
		if form := c.Byte("a type"); c.OK() && form != TypeFunction {
			c.Refuse("form 0x%02x is not supported; build without garbage collection and other proposals beyond WebAssembly 2.0", form)
		}
		params := c.valueTypes("a parameter", "parameters", maxParameters)
		results := c.valueTypes("a result", "results", maxResults)
		m.Types = append(m.Types, Signature{params, results})
	}
}

func (c *Cursor) valueTypes(one, many string, limit int) string {
	n := c.count(many, limit)
	start := c.Pos
	for i := 0; i < n; i++ {
		c.valueType(one)
	}
	if !c.OK() {
		return ""
	}
	return string(c.data[start:c.Pos])
}

// typeIndex reads the index of a function type and checks that it exists.
func (m *Module) typeIndex(c *Cursor) uint32 {
	index := c.U32("a type index")
	if c.OK() && int64(index) >= int64(len(m.Types)) {
		c.refuseDamaged(fmt.Sprintf("no type %d", index))
	}
	return index
}

func (m *Module) readFunctions(c *Cursor) {
	n := c.count("functions", maxFunctions)
	m.Functions = make([]uint32, 0, n)
	for i := 0; i < n && c.OK(); i++ {
		m.Functions = append(m.Functions, m.typeIndex(c))
	}
}

// resizable reads the bounds of a table or memory.
func (c *Cursor) resizable() (r Resizable) {
	flags := c.Byte("the kind of bounds")
	switch {
	case !c.OK():
	case flags&0x02 != 0:
		c.Refuse("shared memory is not allowed; build without threads")
	case flags&0x04 != 0:
		c.Refuse("64-bit memory is not supported; build for wasm32")
	case flags > 1:
		c.refuseDamaged("unknown kind of bounds")
	}
	r.Min = c.U32("a minimum")
	if flags == 1 {
		r.hasMax = true
		r.Max = c.U32("a maximum")
		if c.OK() && r.Max < r.Min {
			c.refuseDamaged("a maximum that is below the minimum")
		}
	}
	return r
}

func (m *Module) readTables(c *Cursor) {
	limit := uint32(m.limits.TableElements)
	n := c.count("tables", maxTables)
	for i := 0; i < n && c.OK(); i++ {
		c.where = fmt.Sprintf("table %d", i)
		t := Table{Element: c.referenceType("the element"), Resizable: c.resizable()}
		if c.OK() && (t.Min > limit || t.hasMax && t.Max > limit) {
			c.Refuse("%d to %d elements, limit %d; declare a smaller table", t.Min, max(t.Min, t.Max), limit)
		}
		if !t.hasMax {
			t.Max = limit
		}
		m.Tables = append(m.Tables, t)
	}
}

// PageBytes is the size of a memory page.
const PageBytes = 1 << 16

func (m *Module) readMemory(c *Cursor) {
	limit := uint32(m.limits.MemoryBytes / PageBytes)
	n := c.count("memories", 1)
	if n == 0 || !c.OK() {
		return
	}
	r := c.resizable()
	switch {
	case !c.OK():
	case r.Min > limit:
		c.Refuse("the memory starts at %d pages of 64 KiB, limit %d; use less static data or a smaller stack", r.Min, limit)
	case r.hasMax && r.Max > limit:
		c.Refuse("the memory's maximum is %d pages of 64 KiB, limit %d; declare no maximum or a smaller one", r.Max, limit)
	}
	if !r.hasMax {
		r.Max = limit
	}
	m.Memory = &r
}
