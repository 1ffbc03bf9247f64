package wasm

import (
	"encoding/binary"
	"strconv"
)

// Names that metering uses. Admission rejects a module that exports them, and
// an import of ImportModule is not in the list of importable functions.
const (
	ImportModule = "__hostd"
	ImportRefuel = "refuel"
	ExportFuel   = "__fuel"
	ExportStack  = "__fuel_stack"
	exportGlobal = "__g" // prefix of the exports of mutable globals
	meterExports = 2     // number of added exports, without those of mutable globals
	meterGlobals = 2
)

// GlobalName returns the export name of a mutable global.
func GlobalName(index uint32) string { return exportGlobal + strconv.FormatUint(uint64(index), 10) }

// StackBytes bounds the sum of the frames of a call, as frameBytes counts them.
// The compiler's own bound is at least 100 MB for an instance.
const StackBytes = 4 << 20

// rewriter rewrites an admitted module with metering.
type rewriter struct {
	metering
	m *Metered
	// added are the types beyond the module's own, each once.
	added map[Signature]uint32
	types []byte
}

func newRewriter(m *Metered) *rewriter {
	imports, globals := uint32(len(m.Imports)), uint32(m.Globals)
	return &rewriter{
		metering: metering{refuel: imports, settle: imports + 1 + uint32(len(m.Functions)), fuel: globals, stack: globals + 1},
		m:        m,
		added:    map[Signature]uint32{},
	}
}

// typeOf returns the index of an added type.
func (r *rewriter) typeOf(s Signature) uint32 {
	index, known := r.added[s]
	if !known {
		index = uint32(len(r.m.Types) + len(r.added))
		r.added[s] = index
		r.types = append(r.types, TypeFunction)
		for _, values := range []string{s.Params, s.Results} {
			r.types = binary.AppendUvarint(r.types, uint64(len(values)))
			r.types = append(r.types, values...)
		}
	}
	return index
}

// blockType returns the type of a block with the given results.
func (r *rewriter) blockType(results string) int64 {
	switch len(results) {
	case 0:
		return BlockVoidType
	case 1:
		return int64(results[0]) - 128 // the format encodes the byte as a signed 7-bit number
	}
	return int64(r.typeOf(Signature{Results: results}))
}

// functions returns the types and bodies of the added functions: settle, and
// one for each bulk instruction.
func (r *rewriter) functions() (types []uint32, bodies [][]byte) {
	body := func(locals []byte, code []byte) []byte { return append(append(locals, code...), OpEnd) }
	types = append(types, r.typeOf(Signature{Params: I64, Results: I64}))
	bodies = append(bodies, body([]byte{0}, r.settleBody()))
	for _, use := range r.m.Bulk {
		locals := []byte{0}
		if use.Op == OpMemoryGrow {
			locals = []byte{1, 1, TypeI32}
		}
		types = append(types, r.typeOf(r.bulkSignature(use)))
		bodies = append(bodies, body(locals, r.bulkBody(use)))
	}
	return types, bodies
}

// extend returns the payload of a section, which is a vector, with items
// appended.
func (r *rewriter) extend(id byte, count int, items []byte) []byte {
	old := r.m.Payload(id)
	c := NewCursor(old)
	before := uint32(0)
	if len(old) > 0 {
		before = c.U32("a number")
	}
	out := binary.AppendUvarint(make([]byte, 0, len(old)+len(items)+4), uint64(before)+uint64(count))
	out = append(out, old[c.Pos:]...)
	return append(out, items...)
}

func (r *rewriter) importSection() []byte {
	item := appendName(appendName(nil, ImportModule), ImportRefuel)
	item = append(item, KindFunction)
	return r.extend(SectionImport, 1, binary.AppendUvarint(item, uint64(r.typeOf(Signature{}))))
}

func (r *rewriter) exportSection() []byte {
	var mutable []uint32
	if r.m.Restorable() {
		mutable = r.m.Mutable
	}
	out := binary.AppendUvarint(nil, uint64(len(r.m.Exports)+meterExports+len(mutable)))
	one := func(name string, kind byte, index uint32) {
		out = binary.AppendUvarint(append(appendName(out, name), kind), uint64(index))
	}
	for _, e := range r.m.Exports {
		index := e.Index
		if e.Kind == KindFunction {
			index = r.shiftIndex(index)
		}
		one(e.Name, e.Kind, index)
	}
	one(ExportFuel, KindGlobal, r.fuel)
	one(ExportStack, KindGlobal, r.stack)
	for _, global := range mutable {
		one(GlobalName(global), KindGlobal, global)
	}
	return out
}

// globalSection adds the two counters and the references to functions that code
// makes. The initial fuel is 0 and the initial stack StackBytes; the host sets
// the fuel before each call.
func (r *rewriter) globalSection() []byte {
	var counters []byte
	for _, start := range [meterGlobals]int64{0, StackBytes} {
		counters = AppendSigned(append(counters, TypeI64, 1, OpI64Const), start)
		counters = append(counters, OpEnd)
	}
	old := r.m.Payload(SectionGlobal)
	c := NewCursor(old)
	var out []byte
	before := uint32(0)
	if len(old) > 0 {
		before = c.U32("a number")
	}
	out = binary.AppendUvarint(out, uint64(before)+meterGlobals+uint64(len(r.m.Referenced)))
	for range before {
		out = append(out, c.Byte("a type"), c.Byte("its mutability"))
		out = r.constant(out, c, old)
	}
	out = append(out, counters...)
	for _, function := range r.m.Referenced {
		out = binary.AppendUvarint(append(out, TypeFuncref, 0, OpRefFunc), uint64(r.shiftIndex(function)))
		out = append(out, OpEnd)
	}
	return out
}

// constant copies a constant expression of a section.
func (r *rewriter) constant(dst []byte, c *Cursor, section []byte) []byte {
	var i Instruction
	for c.OK() {
		c.Next(&i)
		if i.Op == OpRefFunc {
			i.A = r.shiftIndex(i.A)
		}
		dst = appendInstruction(dst, section, &i)
		if i.Op == OpEnd {
			break
		}
	}
	return dst
}

// elementSection copies the element segments with the new indices of functions.
func (r *rewriter) elementSection() []byte {
	old := r.m.Payload(SectionElement)
	c := NewCursor(old)
	n := c.U32("a number")
	out := binary.AppendUvarint(make([]byte, 0, len(old)+8), uint64(n))
	for i := range int(n) {
		kind := c.U32("a kind")
		if kind&3 == 1 && !r.m.copiesSegment(i) {
			kind |= 2 // make the segment declarative, so that instances do not hold it
		}
		out = append(out, byte(kind))
		if kind&1 == 0 {
			if kind&2 != 0 {
				out = binary.AppendUvarint(out, uint64(c.U32("a table")))
			}
			out = r.constant(out, c, old)
		}
		if kind&3 != 0 {
			out = append(out, c.Byte("the element"))
		}
		elements := c.U32("a number")
		out = binary.AppendUvarint(out, uint64(elements))
		for range elements {
			if kind&4 != 0 {
				out = r.constant(out, c, old)
			} else {
				out = binary.AppendUvarint(out, uint64(r.shiftIndex(c.U32("a function"))))
			}
		}
	}
	return out
}

// codeSection writes all bodies. It must run before the type section is
// written, because it adds types.
func (r *rewriter) codeSection(added [][]byte) []byte {
	out := binary.AppendUvarint(nil, uint64(len(r.m.Functions)+len(added)))
	one := func(body []byte) {
		out = append(binary.AppendUvarint(out, uint64(len(body))), body...)
	}
	for i := range r.m.Functions {
		one(r.body(i))
	}
	for _, body := range added {
		one(body)
	}
	return out
}

// functionNames copies the function names with the new indices.
func (r *rewriter) functionNames() []byte {
	names := r.m.Source[r.m.Names.Start:r.m.Names.End]
	if len(names) == 0 {
		return nil
	}
	c := NewCursor(names)
	n := c.U32("a number")
	out := binary.AppendUvarint(make([]byte, 0, len(names)+16), uint64(n))
	for range n {
		out = binary.AppendUvarint(out, uint64(r.shiftIndex(c.U32("a function"))))
		length := c.U32("a length")
		out = binary.AppendUvarint(out, uint64(length))
		start := c.Skip(length, "a name")
		out = append(out, names[start:c.Pos]...)
	}
	return out
}

func appendName(dst []byte, name string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(name))), name...)
}

// reference returns the global that holds a reference to a function.
func (r *rewriter) reference(function uint32) uint32 {
	return r.stack + 1 + uint32(r.m.referenceNumber(function))
}
