package meter

import "github.com/hostd/hostd/host/engine/wasm"

// A bulk instruction does an unbounded amount of work at once. Each is
// replaced by a call of a function that charges for the amount first, and does
// more than bulkChunk bytes in chunks with a check before each: nothing can
// stop the machine inside one.
const bulkChunk = 256 << 10

// Weights of bulk instructions.
const (
	weightBulk       = 16    // of each, beyond its amount
	BytesPerUnit     = 8     // of memory.fill, memory.copy and memory.init
	bytesPerUnitLog2 = 3     // the same, as a shift
	weightElement    = 1     // an element of table.fill, table.copy, table.init
	weightGrow       = 2_000 // memory.grow and table.grow, which are calls of the host
	weightPage       = 8_192 // a page of memory.grow: its 16 pages of the machine are made when touched
	weightNewElement = 8     // an element of table.grow
)

// bulkIndex is the function that stands in for i.
func (r *rewriter) bulkIndex(i *wasm.Instruction) uint32 {
	return r.settle + 1 + uint32(r.m.BulkNumber(i))
}

// bulkSignature is the type of the function, which is that of the instruction.
func (r *rewriter) bulkSignature(u wasm.BulkUse) wasm.Signature {
	switch {
	case u.Op == wasm.OpMemoryGrow:
		return wasm.Signature{Params: wasm.I32, Results: wasm.I32}
	case u.Sub == wasm.MiscTableGrow:
		return wasm.Signature{Params: string(r.m.Tables[u.A].Element) + wasm.I32, Results: wasm.I32}
	case u.Sub == wasm.MiscTableFill:
		return wasm.Signature{Params: wasm.I32 + string(r.m.Tables[u.A].Element) + wasm.I32}
	}
	return wasm.Signature{Params: wasm.I32 + wasm.I32 + wasm.I32}
}

// bulkBody is the body of the function, without locals.
func (w *metering) bulkBody(u wasm.BulkUse) []byte {
	c := &code{}
	switch {
	case u.Op == wasm.OpMemoryGrow:
		w.growMemory(c)
	case u.Sub == wasm.MiscTableGrow:
		w.chargeAmount(c, 1, weightGrow, weightNewElement)
		c.index(wasm.OpLocalGet, 0)
		c.index(wasm.OpLocalGet, 1)
		appendOriginal(c, u)
	case u.Sub == wasm.MiscTableInit || u.Sub == wasm.MiscTableCopy || u.Sub == wasm.MiscTableFill:
		w.chargeAmount(c, 2, weightBulk, weightElement)
		bulkOperands(c)
		appendOriginal(c, u)
	default:
		(&chunks{metering: w, code: c, use: u}).body()
	}
	return c.bytes
}

func appendOriginal(c *code, u wasm.BulkUse) {
	i := &wasm.Instruction{Op: u.Op, Sub: u.Sub, A: u.A, B: u.B}
	c.bytes = wasm.AppendInstruction(c.bytes, nil, i)
}

func bulkOperands(c *code) {
	for local := range uint32(3) {
		c.index(wasm.OpLocalGet, local)
	}
}

// growMemory charges for pages once they are there: a guest that asks for
// what it does not get pays for the question.
func (w *metering) growMemory(c *code) {
	w.charge(c, weightGrow)
	w.check(c)
	c.index(wasm.OpLocalGet, 0)
	c.emit(wasm.OpMemoryGrow, 0)
	c.index(wasm.OpLocalTee, 1)
	c.i32(-1)
	c.emit(wasm.OpI32Ne, wasm.OpIf, wasm.BlockVoid)
	c.index(wasm.OpGlobalGet, w.fuel)
	c.index(wasm.OpLocalGet, 0)
	c.emit(wasm.OpI64ExtendU)
	c.i64(weightPage)
	c.emit(wasm.OpI64Mul, wasm.OpI64Sub)
	c.index(wasm.OpGlobalSet, w.fuel)
	w.check(c)
	c.emit(wasm.OpEnd)
	c.index(wasm.OpLocalGet, 1)
}

// chargeAmount charges for a number of elements of a table, which is in a
// local. A number beyond what a table can hold fails, whatever it is.
func (w *metering) chargeAmount(c *code, local, base, each uint32) {
	const most = 1 << 16
	c.index(wasm.OpGlobalGet, w.fuel)
	c.index(wasm.OpLocalGet, local)
	c.i32(most)
	c.index(wasm.OpLocalGet, local)
	c.i32(most)
	c.emit(wasm.OpI32LtU, wasm.OpSelect, wasm.OpI64ExtendU)
	c.i64(int64(each))
	c.emit(wasm.OpI64Mul)
	c.i64(int64(base))
	c.emit(wasm.OpI64Add, wasm.OpI64Sub)
	c.index(wasm.OpGlobalSet, w.fuel)
	w.check(c)
}
