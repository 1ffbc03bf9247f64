package engine

import (
	"encoding/binary"
)

// The names metering uses. A module cannot import or export them: admission
// refuses the module they are in, or the names.
const (
	meterModule  = "__hostd"
	meterRefuel  = "refuel"
	exportFuel   = "__fuel"
	exportStack  = "__fuel_stack"
	meterExports = 2 // beyond the module's globals: see exportGlobal
	meterGlobals = 2
)

// rewriter writes an admitted module again, with metering.
type rewriter struct {
	metering
	m *parsedModule
	// added are types beyond the module's own, each once.
	added map[signature]uint32
	types []byte
}

func newRewriter(m *parsedModule) *rewriter {
	imports, globals := uint32(len(m.imports)), uint32(m.globals)
	return &rewriter{
		metering: metering{refuel: imports, settle: imports + 1 + uint32(len(m.functions)), fuel: globals, stack: globals + 1},
		m:        m,
		added:    map[signature]uint32{},
	}
}

// typeOf is the index of a type that is added.
func (r *rewriter) typeOf(s signature) uint32 {
	index, known := r.added[s]
	if !known {
		index = uint32(len(r.m.types) + len(r.added))
		r.added[s] = index
		r.types = append(r.types, typeFunction)
		for _, values := range []string{s.params, s.results} {
			r.types = binary.AppendUvarint(r.types, uint64(len(values)))
			r.types = append(r.types, values...)
		}
	}
	return index
}

// blockType is the type of a block that leaves results.
func (r *rewriter) blockType(results string) int64 {
	switch len(results) {
	case 0:
		return blockVoidType
	case 1:
		return int64(results[0]) - 128 // as the format has it: the byte as a signed number of 7 bits
	}
	return int64(r.typeOf(signature{"", results}))
}

// functions are the types and bodies of the functions added: settle, and one
// for each bulk instruction.
func (r *rewriter) functions() (types []uint32, bodies [][]byte) {
	body := func(locals []byte, code []byte) []byte { return append(append(locals, code...), opEnd) }
	types = append(types, r.typeOf(signature{i64, i64}))
	bodies = append(bodies, body([]byte{0}, r.settleBody()))
	for _, use := range r.m.bulk {
		locals := []byte{0}
		if use.op == opMemoryGrow {
			locals = []byte{1, 1, typeI32}
		}
		types = append(types, r.typeOf(r.m.bulkSignature(use)))
		bodies = append(bodies, body(locals, r.bulkBody(use)))
	}
	return types, bodies
}

// extend returns a section's payload, a vector, with items added at its end.
func (r *rewriter) extend(id byte, count int, items []byte) []byte {
	old := r.m.payload(id)
	c := &cursor{data: old, end: len(old)}
	before := uint32(0)
	if len(old) > 0 {
		before = c.u32("a number")
	}
	out := binary.AppendUvarint(make([]byte, 0, len(old)+len(items)+4), uint64(before)+uint64(count))
	out = append(out, old[c.pos:]...)
	return append(out, items...)
}

func (r *rewriter) importSection() []byte {
	item := appendName(appendName(nil, meterModule), meterRefuel)
	item = append(item, kindFunction)
	return r.extend(sectionImport, 1, binary.AppendUvarint(item, uint64(r.typeOf(signature{}))))
}

func (r *rewriter) exportSection() []byte {
	var mutable []uint32
	if r.m.restorable() {
		mutable = r.m.mutable
	}
	out := binary.AppendUvarint(nil, uint64(len(r.m.exports)+meterExports+len(mutable)))
	one := func(name string, kind byte, index uint32) {
		out = binary.AppendUvarint(append(appendName(out, name), kind), uint64(index))
	}
	for _, e := range r.m.exports {
		index := e.index
		if e.kind == kindFunction {
			index = r.shifted(index)
		}
		one(e.name, e.kind, index)
	}
	one(exportFuel, kindGlobal, r.fuel)
	one(exportStack, kindGlobal, r.stack)
	for _, global := range mutable {
		one(globalName(global), kindGlobal, global)
	}
	return out
}

// globalSection adds the two counters. Both start at what _initialize may use
// before the host sets them.
func (r *rewriter) globalSection() []byte {
	var counters []byte
	for _, start := range [meterGlobals]int64{0, stackBytes} {
		counters = appendSigned(append(counters, typeI64, 1, opI64Const), start)
		counters = append(counters, opEnd)
	}
	old := r.m.payload(sectionGlobal)
	c := &cursor{data: old, end: len(old)}
	var out []byte
	before := uint32(0)
	if len(old) > 0 {
		before = c.u32("a number")
	}
	out = binary.AppendUvarint(out, uint64(before)+meterGlobals)
	for range before {
		out = append(out, c.byte("a type"), c.byte("its mutability"))
		out = r.constant(out, c)
	}
	return append(out, counters...)
}

// constant copies a constant expression.
func (r *rewriter) constant(dst []byte, c *cursor) []byte {
	var i instruction
	for c.ok() {
		c.next(&i)
		if i.op == opRefFunc {
			i.a = r.shifted(i.a)
		}
		dst = appendInstruction(dst, c.data, &i)
		if i.op == opEnd {
			break
		}
	}
	return dst
}

// elementSection copies the segments with functions under their new indices.
func (r *rewriter) elementSection() []byte {
	old := r.m.payload(sectionElement)
	c := &cursor{data: old, end: len(old)}
	n := c.u32("a number")
	out := binary.AppendUvarint(make([]byte, 0, len(old)+8), uint64(n))
	for range n {
		kind := c.u32("a kind")
		out = append(out, byte(kind))
		if kind&1 == 0 {
			if kind&2 != 0 {
				out = binary.AppendUvarint(out, uint64(c.u32("a table")))
			}
			out = r.constant(out, c)
		}
		if kind&3 != 0 {
			out = append(out, c.byte("the element"))
		}
		elements := c.u32("a number")
		out = binary.AppendUvarint(out, uint64(elements))
		for range elements {
			if kind&4 != 0 {
				out = r.constant(out, c)
			} else {
				out = binary.AppendUvarint(out, uint64(r.shifted(c.u32("a function"))))
			}
		}
	}
	return out
}

// codeSection writes all bodies; it comes before the types are written, which
// it adds to.
func (r *rewriter) codeSection(added [][]byte) []byte {
	out := binary.AppendUvarint(nil, uint64(len(r.m.functions)+len(added)))
	one := func(body []byte) {
		out = append(binary.AppendUvarint(out, uint64(len(body))), body...)
	}
	for i := range r.m.functions {
		one(r.body(i))
	}
	for _, body := range added {
		one(body)
	}
	return out
}

// functionNames copies the names of functions under their new indices.
func (r *rewriter) functionNames() []byte {
	names := r.m.wasm[r.m.names.start:r.m.names.end]
	if len(names) == 0 {
		return nil
	}
	c := &cursor{data: names, end: len(names)}
	n := c.u32("a number")
	out := binary.AppendUvarint(make([]byte, 0, len(names)+16), uint64(n))
	for range n {
		out = binary.AppendUvarint(out, uint64(r.shifted(c.u32("a function"))))
		length := c.u32("a length")
		out = binary.AppendUvarint(out, uint64(length))
		start := c.skip(length, "a name")
		out = append(out, names[start:c.pos]...)
	}
	return out
}

func appendName(dst []byte, name string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(name))), name...)
}
