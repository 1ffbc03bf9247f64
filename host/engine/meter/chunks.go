package meter

import "github.com/hostd/hostd/host/engine/wasm"

// chunks writes the function that stands in for a memory.fill, memory.copy or
// memory.init of (to, from or value, length).
type chunks struct {
	*metering
	*code
	use wasm.BulkUse
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
	k.emit(wasm.OpIf, wasm.BlockVoid)
	k.trapOutside()
	if k.use.Sub == wasm.MiscMemoryCopy {
		// Upwards into what is still to be read: from the end.
		k.index(wasm.OpLocalGet, chunkTo)
		k.index(wasm.OpLocalGet, chunkFrom)
		k.emit(wasm.OpI32GtU, wasm.OpIf, wasm.BlockVoid)
		k.each(k.backward)
		k.emit(wasm.OpElse)
		k.each(k.forward)
		k.emit(wasm.OpEnd)
	} else {
		k.each(k.forward)
	}
	k.emit(wasm.OpEnd)
	k.index(wasm.OpGlobalGet, k.fuel)
	k.index(wasm.OpLocalGet, chunkLength)
	k.i32(bytesPerUnitLog2)
	k.emit(wasm.OpI32ShrU)
	k.i32(weightBulk)
	k.emit(wasm.OpI32Add, wasm.OpI64ExtendU, wasm.OpI64Sub)
	k.index(wasm.OpGlobalSet, k.fuel)
	k.check(k.code)
	bulkOperands(k.code)
	appendOriginal(k.code, k.use)
}

// moreThanChunk leaves 1 when more than a chunk is left.
func (k *chunks) moreThanChunk() {
	k.index(wasm.OpLocalGet, chunkLength)
	k.i32(bulkChunk)
	k.emit(wasm.OpI32GtU)
}

func (k *chunks) trapOutside() {
	k.outside(chunkTo)
	if k.use.Sub == wasm.MiscMemoryCopy {
		k.outside(chunkFrom)
		k.emit(wasm.OpI32Or)
	}
	k.emit(wasm.OpIf, wasm.BlockVoid)
	bulkOperands(k.code)
	appendOriginal(k.code, k.use)
	k.emit(wasm.OpUnreachable, wasm.OpEnd)
}

// outside leaves 1 when [start, start+length) is not inside memory.
func (k *chunks) outside(start uint32) {
	k.index(wasm.OpLocalGet, start)
	k.emit(wasm.OpI64ExtendU)
	k.index(wasm.OpLocalGet, chunkLength)
	k.emit(wasm.OpI64ExtendU, wasm.OpI64Add, wasm.OpMemorySize, 0, wasm.OpI64ExtendU)
	k.i64(16) // pages to bytes, as a shift
	k.emit(wasm.OpI64Shl, wasm.OpI64GtU)
}

// each charges for a chunk and does it, while more than one is left.
func (k *chunks) each(chunk func()) {
	k.emit(wasm.OpLoop, wasm.BlockVoid)
	k.charge(k.code, bulkChunk/BytesPerUnit)
	k.check(k.code)
	chunk()
	k.moreThanChunk()
	k.index(wasm.OpBrIf, 0)
	k.emit(wasm.OpEnd)
}

// forward does the first chunk.
func (k *chunks) forward() {
	k.index(wasm.OpLocalGet, chunkTo)
	k.index(wasm.OpLocalGet, chunkFrom)
	k.i32(bulkChunk)
	appendOriginal(k.code, k.use)
	k.change(chunkTo, wasm.OpI32Add)
	if k.use.Sub != wasm.MiscMemoryFill {
		k.change(chunkFrom, wasm.OpI32Add)
	}
	k.change(chunkLength, wasm.OpI32Sub)
}

// backward does the last chunk.
func (k *chunks) backward() {
	k.change(chunkLength, wasm.OpI32Sub)
	for _, start := range []uint32{chunkTo, chunkFrom} {
		k.index(wasm.OpLocalGet, start)
		k.index(wasm.OpLocalGet, chunkLength)
		k.emit(wasm.OpI32Add)
	}
	k.i32(bulkChunk)
	appendOriginal(k.code, k.use)
}

// change adds a chunk to a local, or takes it off.
func (k *chunks) change(local uint32, op byte) {
	k.index(wasm.OpLocalGet, local)
	k.i32(bulkChunk)
	k.emit(op)
	k.index(wasm.OpLocalSet, local)
}
