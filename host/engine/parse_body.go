package engine

import (
	"fmt"
)

func (m *parsedModule) readGlobals(c *cursor) {
	m.globals = c.count("globals", maxGlobals)
	for i := 0; i < m.globals && c.ok(); i++ {
		c.where = fmt.Sprintf("global %d", i)
		kind := c.valueType("the global")
		switch mutable := c.byte("its mutability"); {
		case c.ok() && mutable > 1:
			c.damaged("unknown mutability")
		case mutable == 1 && (kind == typeV128 || kind == typeFuncref || kind == typeExternref):
			m.opaque = true
		case mutable == 1:
			m.mutable = append(m.mutable, uint32(i))
		}
		m.skipConstant(c)
	}
}

// Instructions that may stand in a constant expression.
const (
	opEnd       = 0x0b
	opGlobalGet = 0x23
	opI32Const  = 0x41
	opI64Const  = 0x42
	opF32Const  = 0x43
	opF64Const  = 0x44
	opRefNull   = 0xd0
	opRefFunc   = 0xd2
	opVector    = 0xfd
	opV128Const = 0x0c
)

// skipConstant steps over a constant expression: one instruction and its end.
func (m *parsedModule) skipConstant(c *cursor) {
	switch op := c.byte("an initial value"); {
	case !c.ok():
		return
	case op == opI32Const:
		c.skipSigned("an i32", 32)
	case op == opI64Const:
		c.skipSigned("an i64", 64)
	case op == opF32Const:
		c.skip(4, "an f32")
	case op == opF64Const:
		c.skip(8, "an f64")
	case op == opGlobalGet:
		if index := c.u32("a global index"); c.ok() && int64(index) >= int64(m.globals) {
			c.damaged(fmt.Sprintf("no global %d", index))
		}
	case op == opRefNull:
		c.referenceType("a null")
	case op == opRefFunc:
		m.functionIndex(c)
	case op == opVector:
		if c.u32("a vector instruction") != opV128Const {
			c.damaged("not a constant")
		}
		c.skip(16, "a v128")
	default:
		c.refuse("the initial value uses instruction 0x%02x; build without extended constant expressions", op)
	}
	if c.byte("the end of an initial value") != opEnd {
		c.refuse("the initial value is more than one instruction; build without extended constant expressions")
	}
}

func (m *parsedModule) functionIndex(c *cursor) uint32 {
	index := c.u32("a function index")
	if c.ok() && int64(index) >= int64(len(m.imports)+len(m.functions)) {
		c.damaged(fmt.Sprintf("no function %d", index))
	}
	m.nameFunction(index)
	return index
}

// readElements walks the segments that fill tables. Bits of a segment's kind:
// 1 passive or declarative, 2 an explicit table (or declarative), 4 the
// elements are expressions.
func (m *parsedModule) readElements(c *cursor) {
	n := c.count("element segments", maxElements)
	for i := 0; i < n && c.ok(); i++ {
		c.where = fmt.Sprintf("element segment %d", i)
		kind := c.u32("its kind")
		if kind > 7 {
			c.damaged("unknown kind of segment")
			return
		}
		if kind&1 == 0 {
			if kind&2 != 0 {
				c.u32("a table index")
			}
			m.skipConstant(c)
		}
		if kind&3 != 0 {
			if kind&4 != 0 {
				c.referenceType("the element")
			} else if c.byte("the element") != 0 {
				c.damaged("unknown kind of element")
			}
		}
		elements := c.count("elements", c.left())
		for j := 0; j < elements && c.ok(); j++ {
			if kind&4 != 0 {
				m.skipConstant(c)
			} else {
				m.functionIndex(c)
			}
		}
	}
}

func (m *parsedModule) readCode(c *cursor) {
	n := c.count("function bodies", maxFunctions)
	if c.ok() && n != len(m.functions) {
		c.damaged(fmt.Sprintf("%d functions are declared and %d have a body", len(m.functions), n))
	}
	m.bodies = make([]stretch, 0, n)
	for i := 0; i < n && c.ok(); i++ {
		c.where = fmt.Sprintf("function body %d", i)
		size := c.u32("its size")
		if int64(size) > int64(m.limits.FunctionBodyBytes) {
			c.refuse("%d bytes, limit %d; split the function or build with less inlining", size, m.limits.FunctionBodyBytes)
		}
		start := c.skip(size, "a function body")
		m.readBody(c, stretch{start, c.pos})
		m.bodies = append(m.bodies, stretch{start, c.pos})
	}
}

// readBody checks a function's locals and plans how to meter it.
func (m *parsedModule) readBody(outer *cursor, body stretch) {
	if !outer.ok() {
		return
	}
	c := &cursor{data: m.wasm, pos: body.start, end: body.end, where: outer.where}
	groups := c.count("groups of locals", c.left())
	sum := uint64(0)
	for i := 0; i < groups && c.ok(); i++ {
		sum += uint64(c.u32("a number of locals"))
		c.valueType("a local")
		if sum > uint64(m.limits.FunctionLocals) {
			c.refuse("more than %d locals; split the function or build with less inlining", m.limits.FunctionLocals)
		}
	}
	if c.ok() {
		signature := m.types[m.functions[len(m.bodies)]]
		m.plans = append(m.plans, m.planBody(c, len(signature.params), len(signature.results), int(sum)))
		if m.points += len(m.plans[len(m.plans)-1].points); m.points > maxPoints {
			c.refuse("more than %d functions, loops and cases of switches up to here; split the module", maxPoints)
		}
	}
	outer.fault = c.fault
}

func (m *parsedModule) readData(c *cursor) {
	n := c.count("data segments", maxDataSegments)
	if c.ok() && m.dataCount >= 0 && n != m.dataCount {
		c.damaged(fmt.Sprintf("%d data segments are announced and %d are there", m.dataCount, n))
	}
	for i := 0; i < n && c.ok(); i++ {
		c.where = fmt.Sprintf("data segment %d", i)
		kind := c.u32("its kind")
		if kind > 2 {
			c.damaged("unknown kind of segment")
			return
		}
		if kind == 2 && c.u32("a memory index") != 0 {
			c.damaged("no such memory")
		}
		if kind != 1 {
			m.skipConstant(c)
		}
		c.skip(c.u32("its size"), "the data")
	}
}
