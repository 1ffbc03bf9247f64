package wasm

import (
	"fmt"
)

func (m *Module) readGlobals(c *Cursor) {
	m.Globals = c.count("globals", maxGlobals)
	for i := 0; i < m.Globals && c.OK(); i++ {
		c.where = fmt.Sprintf("global %d", i)
		kind := c.valueType("the global")
		switch mutable := c.Byte("its mutability"); {
		case c.OK() && mutable > 1:
			c.refuseDamaged("unknown mutability")
		case mutable == 1 && (kind == TypeV128 || kind == TypeFuncref || kind == TypeExternref):
			m.opaque = true
		case mutable == 1:
			m.Mutable = append(m.Mutable, uint32(i))
		}
		if m.skipConstant(c) == OpRefFunc {
			m.globalReferences++
		}
	}
}

// Instructions that constant expressions may contain.
const (
	OpEnd       = 0x0b
	OpGlobalGet = 0x23
	OpI32Const  = 0x41
	OpI64Const  = 0x42
	OpF32Const  = 0x43
	OpF64Const  = 0x44
	OpRefNull   = 0xd0
	OpRefFunc   = 0xd2
	OpVector    = 0xfd
	OpV128Const = 0x0c
)

// skipConstant skips a constant expression, which is one instruction and an
// end, and returns the instruction.
func (m *Module) skipConstant(c *Cursor) byte {
	op := c.Byte("an initial value")
	switch {
	case !c.OK():
		return op
	case op == OpI32Const:
		c.skipSigned("an i32", 32)
	case op == OpI64Const:
		c.skipSigned("an i64", 64)
	case op == OpF32Const:
		c.Skip(4, "an f32")
	case op == OpF64Const:
		c.Skip(8, "an f64")
	case op == OpGlobalGet:
		if index := c.U32("a global index"); c.OK() && int64(index) >= int64(m.Globals) {
			c.refuseDamaged(fmt.Sprintf("no global %d", index))
		}
	case op == OpRefNull:
		c.referenceType("a null")
	case op == OpRefFunc:
		m.functionIndex(c)
	case op == OpVector:
		if c.U32("a vector instruction") != OpV128Const {
			c.refuseDamaged("not a constant")
		}
		c.Skip(16, "a v128")
	default:
		c.Refuse("the initial value uses instruction 0x%02x; build without extended constant expressions", op)
	}
	if c.Byte("the end of an initial value") != OpEnd {
		c.Refuse("the initial value is more than one instruction; build without extended constant expressions")
	}
	return op
}

func (m *Module) functionIndex(c *Cursor) uint32 {
	index := c.U32("a function index")
	if c.OK() && int64(index) >= int64(len(m.Imports)+len(m.Functions)) {
		c.refuseDamaged(fmt.Sprintf("no function %d", index))
	}
	m.nameFunction(index)
	return index
}

// readElements reads the element segments. The bits of a segment's kind: 1
// passive or declarative, 2 explicit table (or declarative), 4 elements are
// expressions.
func (m *Module) readElements(c *Cursor) {
	n := c.count("element segments", maxSegments)
	sum := 0
	for i := 0; i < n && c.OK(); i++ {
		c.where = fmt.Sprintf("element segment %d", i)
		kind := c.U32("its kind")
		if kind > 7 {
			c.refuseDamaged("unknown kind of segment")
			return
		}
		if kind&1 == 0 {
			if kind&2 != 0 {
				c.U32("a table index")
			}
			m.skipConstant(c)
		}
		if kind&3 != 0 {
			if kind&4 != 0 {
				c.referenceType("the element")
			} else if c.Byte("the element") != 0 {
				c.refuseDamaged("unknown kind of element")
			}
		}
		s := elementSegment{passive: kind&1 != 0, elements: c.count("elements", c.Remaining())}
		if sum += s.elements; sum > maxElements {
			c.Refuse("%d elements in all segments up to here, limit %d; split the module", sum, maxElements)
		}
		for j := 0; j < s.elements && c.OK(); j++ {
			if kind&4 == 0 {
				m.functionIndex(c)
				s.references++
			} else if m.skipConstant(c) == OpRefFunc {
				s.references++
			}
		}
		m.segments = append(m.segments, s)
	}
}

func (m *Module) readCode(c *Cursor) {
	n := c.count("function bodies", maxFunctions)
	if c.OK() && n != len(m.Functions) {
		c.refuseDamaged(fmt.Sprintf("%d functions are declared, but %d have a body", len(m.Functions), n))
	}
	m.Bodies = make([]Stretch, 0, n)
	for i := 0; i < n && c.OK(); i++ {
		c.where = fmt.Sprintf("function body %d", i)
		size := c.U32("its size")
		if int64(size) > int64(m.limits.FunctionBodyBytes) {
			c.Refuse("%d bytes, limit %d; split the function or build with less inlining", size, m.limits.FunctionBodyBytes)
		}
		start := c.Skip(size, "a function body")
		m.readBody(c, Stretch{start, c.Pos})
		m.Bodies = append(m.Bodies, Stretch{start, c.Pos})
	}
}

// readBody checks a function's locals and instructions.
func (m *Module) readBody(outer *Cursor, body Stretch) {
	if !outer.OK() {
		return
	}
	c := &Cursor{data: m.Source, Pos: body.Start, end: body.End, where: outer.where}
	groups := c.count("groups of locals", c.Remaining())
	sum := uint64(0)
	for i := 0; i < groups && c.OK(); i++ {
		sum += uint64(c.U32("a number of locals"))
		c.valueType("a local")
		if sum > uint64(m.limits.FunctionLocals) {
			c.Refuse("more than %d locals; split the function or build with less inlining", m.limits.FunctionLocals)
		}
	}
	if c.OK() {
		m.readInstructions(c, Function{
			Index: uint32(len(m.Imports) + len(m.Bodies)), Signature: m.Types[m.Functions[len(m.Bodies)]],
			Locals: int(sum), Code: Stretch{Start: c.Pos, End: c.end},
		}, m.reader)
	}
	outer.fault = c.fault
}

func (m *Module) readData(c *Cursor) {
	n := c.count("data segments", maxDataSegments)
	if c.OK() && m.DataCount >= 0 && n != m.DataCount {
		c.refuseDamaged(fmt.Sprintf("%d data segments are announced, but there are %d", m.DataCount, n))
	}
	alone := m.DataCount < 0 // the engine writes the data, see CutData
	for i := 0; i < n && c.OK(); i++ {
		c.where = fmt.Sprintf("data segment %d", i)
		kind := c.U32("its kind")
		if kind > 2 {
			c.refuseDamaged("unknown kind of segment")
			return
		}
		if kind == 2 && c.U32("a memory index") != 0 {
			c.refuseDamaged("no such memory")
		}
		if kind == 1 || m.skipConstant(c) != OpI32Const || kind == 2 {
			alone = false
		}
		c.Skip(c.U32("its size"), "the data")
	}
	if !alone {
		m.data = n
	}
}
