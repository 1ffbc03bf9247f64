package wasm

// A bulk instruction does an unbounded amount of work. Each is replaced by a
// call of an added function that charges for the amount first. If the amount
// exceeds bulkChunk bytes, the function works in chunks with a check before
// each, because nothing can interrupt the machine inside a bulk instruction.
const bulkChunk = 256 << 10

// Weights of bulk instructions.
const (
	weightBulk       = 16    // cost of each instruction, without its amount
	BytesPerUnit     = 8     // bytes that memory.fill, memory.copy and memory.init process for a unit of fuel
	bytesPerUnitLog2 = 3     // BytesPerUnit as a shift
	weightElement    = 1     // cost of each element of table.fill, table.copy and table.init
	weightGrow       = 2_000 // cost of memory.grow and table.grow, which call the host
	weightPage       = 8_192 // cost of each page of memory.grow, because its 16 machine pages are created when touched
	weightNewElement = 8     // cost of each element of table.grow
)

// bulkIndex returns the index of the function that replaces i.
func (r *rewriter) bulkIndex(i *Instruction) uint32 {
	return r.settle + 1 + uint32(r.m.bulkNumber(i))
}

// bulkSignature returns the type of the function that replaces a bulk
// instruction. It equals the type of the instruction.
func (r *rewriter) bulkSignature(u bulkUse) Signature {
	switch {
	case u.Op == OpMemoryGrow:
		return Signature{Params: I32, Results: I32}
	case u.Sub == MiscTableGrow:
		return Signature{Params: string(r.m.Tables[u.A].Element) + I32, Results: I32}
	case u.Sub == MiscTableFill:
		return Signature{Params: I32 + string(r.m.Tables[u.A].Element) + I32}
	}
	return Signature{Params: I32 + I32 + I32}
}

// bulkBody returns the body, without locals, of the function that replaces a
// bulk instruction.
func (w *metering) bulkBody(u bulkUse) []byte {
	c := &code{}
	switch {
	case u.Op == OpMemoryGrow:
		w.growMemory(c)
	case u.Sub == MiscTableGrow:
		w.chargeAmount(c, 1, weightGrow, weightNewElement)
		c.index(OpLocalGet, 0)
		c.index(OpLocalGet, 1)
		appendOriginal(c, u)
	case u.Sub == MiscTableInit || u.Sub == MiscTableCopy || u.Sub == MiscTableFill:
		w.chargeAmount(c, 2, weightBulk, weightElement)
		bulkOperands(c)
		appendOriginal(c, u)
	default:
		(&chunks{metering: w, code: c, use: u}).body()
	}
	return c.bytes
}

func appendOriginal(c *code, u bulkUse) {
	i := &Instruction{Op: u.Op, Sub: u.Sub, A: u.A, B: u.B}
	c.bytes = appendInstruction(c.bytes, nil, i)
}

func bulkOperands(c *code) {
	for local := range uint32(3) {
		c.index(OpLocalGet, local)
	}
}

// growMemory charges for pages after they have been added. If memory.grow
// fails, the guest pays only for the call.
func (w *metering) growMemory(c *code) {
	w.charge(c, weightGrow)
	w.check(c)
	c.index(OpLocalGet, 0)
	c.emit(OpMemoryGrow, 0)
	c.index(OpLocalTee, 1)
	c.i32(-1)
	c.emit(OpI32Ne, OpIf, BlockVoid)
	c.index(OpGlobalGet, w.fuel)
	c.index(OpLocalGet, 0)
	c.emit(OpI64ExtendU)
	c.i64(weightPage)
	c.emit(OpI64Mul, OpI64Sub)
	c.index(OpGlobalSet, w.fuel)
	w.check(c)
	c.emit(OpEnd)
	c.index(OpLocalGet, 1)
}

// chargeAmount charges for the number of table elements in a local. The
// number is capped at the maximum size of a table, because a larger number
// always traps.
func (w *metering) chargeAmount(c *code, local, base, each uint32) {
	const most = 1 << 16
	c.index(OpGlobalGet, w.fuel)
	c.index(OpLocalGet, local)
	c.i32(most)
	c.index(OpLocalGet, local)
	c.i32(most)
	c.emit(OpI32LtU, OpSelect, OpI64ExtendU)
	c.i64(int64(each))
	c.emit(OpI64Mul)
	c.i64(int64(base))
	c.emit(OpI64Add, OpI64Sub)
	c.index(OpGlobalSet, w.fuel)
	w.check(c)
}
