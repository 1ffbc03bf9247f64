package wasm

// Fuel is counted in units of about one simple machine instruction: a tenth to
// a quarter of a nanosecond. These weights, and those of the functions that
// stand in for bulk instructions, are in FUEL.md. They follow BenchmarkPrices
// of package engine: an instruction that computes should take at most four
// times as long for a unit as an i64.add. Another weight is another price for every guest, so
// they change with a line in the changelog.
const (
	weightPlain    = 1
	weightCall     = 4  // beyond what the function itself is charged
	weightIndirect = 16 // a call by a table, which looks at the table and the type
	weightHost     = 64 // a function of the host: leaving the guest and coming back
	weightFloat    = 4  // a comparison of floats, or a conversion between them and integers
	weightDivide   = 8  // division, remainder, square root
	weightVector   = 2
	weightLong     = 8 // of vectors: division and what the compiler writes as many instructions
	weightAccess   = 4 // to memory, which may have to be waited for
	weightValue    = 1 // a value beyond freeValues that a call, a branch or a block takes along

	// freeValues is how many values a call, a branch or a block takes along in
	// registers, as part of its own weight.
	freeValues = 4

	// LoopWeight is what one pass through a loop's header costs, so that no
	// loop is free.
	LoopWeight = 1
)

// Weight is what an instruction costs by itself, without the values that it
// takes along. What only shapes the code, or names a value that is already in a
// register, costs nothing.
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
	case i.AccessesMemory():
		return weightAccess
	case op == OpVector && longVector(i.Sub):
		return weightLong
	case op == OpVector:
		return weightVector
	}
	return weightPlain
}

// carrying is what n values cost that a call, a branch or a block takes along.
func carrying(n int) uint32 { return weightValue * uint32(max(0, n-freeValues)) }

// longVector reports whether the vector instruction is a division or a square
// root, or has no instruction of the machine to itself.
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
