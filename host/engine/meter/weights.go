package meter

import "github.com/hostd/hostd/host/engine/wasm"

// Fuel is counted in units of about one simple machine instruction: a tenth to
// a quarter of a nanosecond. These weights, and those of the functions that stand in for bulk
// instructions, are in FUEL.md; another weight is another price for every
// guest, so they change with a line in the changelog.
const (
	weightPlain  = 1
	weightCall   = 4  // beyond what the function itself is charged
	weightHost   = 64 // a function of the host: leaving the guest and coming back
	weightDivide = 8  // division, remainder, square root
	weightVector = 2
	weightAccess = 4 // to memory, which may have to be waited for

	// LoopWeight is what one pass through a loop's header costs, so that no
	// loop is free.
	LoopWeight = 1
)

// Weight is what an instruction costs by itself. What only shapes the code, or
// names a value that is already in a register, costs nothing.
func Weight(i *wasm.Instruction) uint32 {
	switch op := i.Op; {
	case op == wasm.OpNop || op == wasm.OpBlock || op == wasm.OpLoop || op == wasm.OpElse || op == wasm.OpEnd || op == wasm.OpDrop || op == wasm.OpLocalGet:
		return 0
	case op == wasm.OpCall || op == wasm.OpCallIndirect:
		return weightCall
	case op >= opI32DivS && op <= opI32RemU || op >= opI64DivS && op <= opI64RemU ||
		op == opF32Sqrt || op == opF64Sqrt || op == opF32Div || op == opF64Div:
		return weightDivide
	case i.AccessesMemory():
		return weightAccess
	case op == wasm.OpVector:
		return weightVector
	}
	return weightPlain
}

const (
	opI32DivS = 0x6d
	opI32RemU = 0x70
	opI64DivS = 0x7f
	opI64RemU = 0x82
	opF32Sqrt = 0x91
	opF32Div  = 0x95
	opF64Sqrt = 0x9f
	opF64Div  = 0xa3
)
