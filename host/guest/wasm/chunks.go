package wasm

// chunks writes the function that replaces memory.fill, memory.copy or
// memory.init. Its parameters are (to, from or value, length).
type chunks struct {
	*metering
	*code
	use bulkUse
}

const (
	chunkTo = iota // parameters of the function
	chunkFrom
	chunkLength
)

// body processes whole chunks while more than a chunk is left, and then the
// rest at once. A range outside memory traps before anything is charged or
// written, as the original instruction does.
func (k *chunks) body() {
	k.moreThanChunk()
	k.emit(OpIf, BlockVoid)
	k.trapOutside()
	if k.use.Sub == MiscMemoryCopy {
		// An overlapping copy to a higher address must run from the end.
		k.index(OpLocalGet, chunkTo)
		k.index(OpLocalGet, chunkFrom)
		k.emit(OpI32GtU, OpIf, BlockVoid)
		k.each(k.backward)
		k.emit(OpElse)
		k.each(k.forward)
		k.emit(OpEnd)
	} else {
		k.each(k.forward)
	}
	k.emit(OpEnd)
	k.index(OpGlobalGet, k.fuel)
	k.index(OpLocalGet, chunkLength)
	k.i32(bytesPerUnitLog2)
	k.emit(OpI32ShrU)
	k.i32(weightBulk)
	k.emit(OpI32Add, OpI64ExtendU, OpI64Sub)
	k.index(OpGlobalSet, k.fuel)
	k.check(k.code)
	bulkOperands(k.code)
	appendOriginal(k.code, k.use)
}

// moreThanChunk pushes 1 if more than a chunk is left.
func (k *chunks) moreThanChunk() {
	k.index(OpLocalGet, chunkLength)
	k.i32(bulkChunk)
	k.emit(OpI32GtU)
}

func (k *chunks) trapOutside() {
	k.outside(chunkTo)
	if k.use.Sub == MiscMemoryCopy {
		k.outside(chunkFrom)
		k.emit(OpI32Or)
	}
	k.emit(OpIf, BlockVoid)
	bulkOperands(k.code)
	appendOriginal(k.code, k.use)
	k.emit(OpUnreachable, OpEnd)
}

// outside pushes 1 if [start, start+length) is not inside memory.
func (k *chunks) outside(start uint32) {
	k.index(OpLocalGet, start)
	k.emit(OpI64ExtendU)
	k.index(OpLocalGet, chunkLength)
	k.emit(OpI64ExtendU, OpI64Add, OpMemorySize, 0, OpI64ExtendU)
	k.i64(16) // converts pages to bytes, by a shift
	k.emit(OpI64Shl, OpI64GtU)
}

// each charges for a chunk and processes it, while more than one is left.
func (k *chunks) each(chunk func()) {
	k.emit(OpLoop, BlockVoid)
	k.charge(k.code, bulkChunk/BytesPerUnit)
	k.check(k.code)
	chunk()
	k.moreThanChunk()
	k.index(OpBrIf, 0)
	k.emit(OpEnd)
}

// forward processes the first chunk.
func (k *chunks) forward() {
	k.index(OpLocalGet, chunkTo)
	k.index(OpLocalGet, chunkFrom)
	k.i32(bulkChunk)
	appendOriginal(k.code, k.use)
	k.change(chunkTo, OpI32Add)
	if k.use.Sub != MiscMemoryFill {
		k.change(chunkFrom, OpI32Add)
	}
	k.change(chunkLength, OpI32Sub)
}

// backward processes the last chunk.
func (k *chunks) backward() {
	k.change(chunkLength, OpI32Sub)
	for _, start := range []uint32{chunkTo, chunkFrom} {
		k.index(OpLocalGet, start)
		k.index(OpLocalGet, chunkLength)
		k.emit(OpI32Add)
	}
	k.i32(bulkChunk)
	appendOriginal(k.code, k.use)
}

// change adds bulkChunk to a local, or subtracts it.
func (k *chunks) change(local uint32, op byte) {
	k.index(OpLocalGet, local)
	k.i32(bulkChunk)
	k.emit(op)
	k.index(OpLocalSet, local)
}
