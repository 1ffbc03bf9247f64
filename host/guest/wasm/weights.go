package wasm

// A unit of fuel is about one simple machine instruction: 0.1 to 0.25 ns.
// abi/FUEL.md lists these weights and those of the functions that replace bulk
// instructions. They are fitted to BenchmarkPrices of package guest: a unit
// spent on an instruction that computes should last at most four times as long
// as a unit spent on an i64.add. Changing a weight changes the price of every
// guest, so each change is listed in the changelog.
const (
	weightPlain    = 1
	weightCall     = 4  // a call, without the cost of the called function
	weightIndirect = 16 // a call through a table, with its checks of table and type
	weightHost     = 64 // a call of a host function: leaving the guest and returning
	weightFloat    = 4  // a comparison of floats, or a conversion between floats and integers
	weightDivide   = 8  // division, remainder, square root
	weightVector   = 2
	weightLong     = 8 // vector division, and vector instructions that compile to many machine instructions
	weightAccess   = 4 // memory access, which may have to wait
	weightValue    = 1 // each value beyond freeValues that a call, branch or block carries

	// freeValues is how many values a call, branch or block carries in registers
	// at no extra cost.
	freeValues = 4

	// LoopWeight is the cost of one pass through a loop header, so that no loop is
	// free.
	LoopWeight = 1
)

// Weight returns the cost of an instruction, not counting the values that it
// moves. An instruction that only structures the code, or names a value already
// in a register, is free.
func Weight(i *Instruction) uint32 {
	switch op := i.Op; {
	case op == OpNop || op == OpBlock || op == OpLoop || op == OpElse || op == OpEnd || op == OpDrop || op == OpLocalGet:
		return 0
	case op == OpCall:
		return weightCall
	case op == OpCallIndirect:
		return weightIndirect
	case op >= opI32DivS && op <= opI32RemU || op >= opI64DivS && op <= opI64RemU ||
		op == opF32Sqrt || op == opF64Sqrt || op == opF32Div || op == opF64Div:
		return weightDivide
	case op >= opF32Eq && op <= opF64Ge || op >= opI32TruncF32S && op <= opI32TruncF64U ||
		op >= opI64TruncF32S && op <= opF64ConvertI64U && op != opF32Demote || op == OpMisc && i.Sub <= MiscLastConversion:
		return weightFloat
	case i.accessesMemory():
		return weightAccess
	case op == OpVector && longVector(i.Sub):
		return weightLong
	case op == OpVector:
		return weightVector
	}
	return weightPlain
}

// carrying returns the cost of n values carried by a call, branch or block.
func carrying(n int) uint32 { return weightValue * uint32(max(0, n-freeValues)) }

// longVector reports whether a vector instruction is a division or a square
// root, or has no single machine instruction.
func longVector(sub uint32) bool {
	switch sub {
	case 0x53, 0x63, 0x83, 0xa3, 0xc3, // any_true, all_true
		0xcc,                   // i64x2.shr_s
		0xd5,                   // i64x2.mul
		0xdc, 0xdd, 0xde, 0xdf, // i64x2.extmul
		0xe3, 0xe7, 0xe8, 0xe9, // f32x4.sqrt, div, min, max
		0xef, 0xf3, 0xf4, 0xf5, // f64x2.sqrt, div, min, max
		0xf8, 0xf9, 0xfb, 0xfc, 0xfd: // conversions
		return true
	}
	return false
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

	opF32Eq          = 0x5b
	opF64Ge          = 0x66
	opI32TruncF32S   = 0xa8
	opI32TruncF64U   = 0xab
	opI64TruncF32S   = 0xae
	opF32Demote      = 0xb6
	opF64ConvertI64U = 0xba
)
