package wasm

import (
	"encoding/binary"
	"strconv"
)

// The names metering uses. A module cannot import or export them: admission
// refuses the module they are in, or the names.
const (
	ImportModule = "__hostd"
	ImportRefuel = "refuel"
	ExportFuel   = "__fuel"
	ExportStack  = "__fuel_stack"
	exportGlobal = "__g" // begins the names of the exports of mutable globals
	meterExports = 2     // beyond the module's globals: see exportGlobal
	meterGlobals = 2
)

// GlobalName is the name that a mutable global is exported by.
func GlobalName(index uint32) string { return exportGlobal + strconv.FormatUint(uint64(index), 10) }

// StackBytes bounds the frames of a call, as frameBytes counts them. The
// compiler's own bound is 100 MB and more an instance.
const StackBytes = 4 << 20

// rewriter writes an admitted module again, with metering.
type rewriter struct {
	metering
	m *Metered
	// added are types beyond the module's own, each once.
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

// typeOf is the index of a type that is added.
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

// blockType is the type of a block that leaves results.
func (r *rewriter) blockType(results string) int64 {
	switch len(results) {
	case 0:
		return BlockVoidType
	case 1:
		return int64(results[0]) - 128 // as the format has it: the byte as a signed number of 7 bits
	}
	return int64(r.typeOf(Signature{Results: results}))
}

// functions are the types and bodies of the functions added: settle, and one
// for each bulk instruction.
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

// extend returns a section's payload, a vector, with items added at its end.
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
			index = r.shifted(index)
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

// globalSection adds the two counters and the references to functions that
// code makes. Both counters start at what _initialize may use before the host
// sets them.
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
		out = binary.AppendUvarint(append(out, TypeFuncref, 0, OpRefFunc), uint64(r.shifted(function)))
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
			i.A = r.shifted(i.A)
		}
		dst = AppendInstruction(dst, section, &i)
		if i.Op == OpEnd {
			break
		}
	}
	return dst
}

// elementSection copies the segments with functions under their new indices.
func (r *rewriter) elementSection() []byte {
	old := r.m.Payload(SectionElement)
	c := NewCursor(old)
	n := c.U32("a number")
	out := binary.AppendUvarint(make([]byte, 0, len(old)+8), uint64(n))
	for i := range int(n) {
		kind := c.U32("a kind")
		if kind&3 == 1 && !r.m.Copied(i) {
			kind |= 2 // declarative: it is in no instance
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
				out = binary.AppendUvarint(out, uint64(r.shifted(c.U32("a function"))))
			}
		}
	}
	return out
}

// codeSection writes all bodies; it comes before the types are written, which
// it adds to.
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

// functionNames copies the names of functions under their new indices.
func (r *rewriter) functionNames() []byte {
	names := r.m.Source[r.m.Names.Start:r.m.Names.End]
	if len(names) == 0 {
		return nil
	}
	c := NewCursor(names)
	n := c.U32("a number")
	out := binary.AppendUvarint(make([]byte, 0, len(names)+16), uint64(n))
	for range n {
		out = binary.AppendUvarint(out, uint64(r.shifted(c.U32("a function"))))
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

// reference is the global that holds a reference to a function.
func (r *rewriter) reference(function uint32) uint32 {
	return r.stack + 1 + uint32(r.m.ReferenceNumber(function))
}
