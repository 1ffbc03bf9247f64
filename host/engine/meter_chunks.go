package engine

// chunks writes the function that stands in for a memory.fill, memory.copy or
// memory.init of (to, from or value, length).
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

// body does more than a chunk in chunks, and what is left at once. What lies
// outside memory traps before anything is charged or written, as the
// instruction itself would.
func (k *chunks) body() {
	k.moreThanChunk()
	k.emit(opIf, blockVoid)
	k.trapOutside()
	if k.use.sub == miscMemoryCopy {
		// Upwards into what is still to be read: from the end.
		k.index(opLocalGet, chunkTo)
		k.index(opLocalGet, chunkFrom)
		k.emit(opI32GtU, opIf, blockVoid)
		k.each(k.backward)
		k.emit(opElse)
		k.each(k.forward)
		k.emit(opEnd)
	} else {
		k.each(k.forward)
	}
	k.emit(opEnd)
	k.index(opGlobalGet, k.fuel)
	k.index(opLocalGet, chunkLength)
	k.i32(bytesPerUnitLog2)
	k.emit(opI32ShrU)
	k.i32(weightBulk)
	k.emit(opI32Add, opI64ExtendU, opI64Sub)
	k.index(opGlobalSet, k.fuel)
	k.check(k.code)
	bulkOperands(k.code)
	appendOriginal(k.code, k.use)
}

// moreThanChunk leaves 1 when more than a chunk is left.
func (k *chunks) moreThanChunk() {
	k.index(opLocalGet, chunkLength)
	k.i32(bulkChunk)
	k.emit(opI32GtU)
}

func (k *chunks) trapOutside() {
	k.outside(chunkTo)
	if k.use.sub == miscMemoryCopy {
		k.outside(chunkFrom)
		k.emit(opI32Or)
	}
	k.emit(opIf, blockVoid)
	bulkOperands(k.code)
	appendOriginal(k.code, k.use)
	k.emit(opUnreachable, opEnd)
}

// outside leaves 1 when [start, start+length) is not inside memory.
func (k *chunks) outside(start uint32) {
	k.index(opLocalGet, start)
	k.emit(opI64ExtendU)
	k.index(opLocalGet, chunkLength)
	k.emit(opI64ExtendU, opI64Add, opMemorySize, 0, opI64ExtendU)
	k.i64(16) // pages to bytes, as a shift
	k.emit(opI64Shl, opI64GtU)
}

// each charges for a chunk and does it, while more than one is left.
func (k *chunks) each(chunk func()) {
	k.emit(opLoop, blockVoid)
	k.charge(k.code, bulkChunk/bytesPerUnit)
	k.check(k.code)
	chunk()
	k.moreThanChunk()
	k.index(opBrIf, 0)
	k.emit(opEnd)
}

// forward does the first chunk.
func (k *chunks) forward() {
	k.index(opLocalGet, chunkTo)
	k.index(opLocalGet, chunkFrom)
	k.i32(bulkChunk)
	appendOriginal(k.code, k.use)
	k.change(chunkTo, opI32Add)
	if k.use.sub != miscMemoryFill {
		k.change(chunkFrom, opI32Add)
	}
	k.change(chunkLength, opI32Sub)
}

// backward does the last chunk.
func (k *chunks) backward() {
	k.change(chunkLength, opI32Sub)
	for _, start := range []uint32{chunkTo, chunkFrom} {
		k.index(opLocalGet, start)
		k.index(opLocalGet, chunkLength)
		k.emit(opI32Add)
	}
	k.i32(bulkChunk)
	appendOriginal(k.code, k.use)
}

// change adds a chunk to a local, or takes it off.
func (k *chunks) change(local uint32, op byte) {
	k.index(opLocalGet, local)
	k.i32(bulkChunk)
	k.emit(op)
	k.index(opLocalSet, local)
}
