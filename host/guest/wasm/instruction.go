package wasm

import "encoding/binary"

// Instructions that are handled individually: control flow, calls, and
// instructions with an index or a length.
const (
	OpUnreachable  = 0x00
	OpNop          = 0x01
	OpBlock        = 0x02
	OpLoop         = 0x03
	OpIf           = 0x04
	OpElse         = 0x05
	OpBr           = 0x0c
	OpBrIf         = 0x0d
	OpBrTable      = 0x0e
	OpReturn       = 0x0f
	OpCall         = 0x10
	OpCallIndirect = 0x11
	OpDrop         = 0x1a
	OpSelect       = 0x1b
	OpSelectTyped  = 0x1c
	OpLocalGet     = 0x20
	OpLocalSet     = 0x21
	OpLocalTee     = 0x22
	OpGlobalSet    = 0x24
	OpTableGet     = 0x25
	OpTableSet     = 0x26
	OpI32Load      = 0x28
	OpI64Store32   = 0x3e
	OpMemorySize   = 0x3f
	OpMemoryGrow   = 0x40
	OpI32Eqz       = 0x45
	OpI32Ne        = 0x47
	OpI32LtU       = 0x49
	OpI32GtU       = 0x4b
	OpI64LtS       = 0x53
	OpI64GtU       = 0x56
	OpI32Add       = 0x6a
	OpI32Sub       = 0x6b
	OpI32Or        = 0x72
	OpI32ShrU      = 0x76
	OpI64Add       = 0x7c
	OpI64Sub       = 0x7d
	OpI64Mul       = 0x7e
	OpI64Or        = 0x84
	OpI64Shl       = 0x86
	OpI64ExtendU   = 0xad
	BlockVoid      = 0x40
	BlockVoidType  = -64 // BlockVoid as a signed number
	OpI64Extend32S = 0xc4
	OpRefIsNull    = 0xd1
	OpMisc         = 0xfc
)

// Instructions after the prefix OpMisc.
const (
	MiscLastConversion = 7
	MiscMemoryInit     = 8
	MiscDataDrop       = 9
	MiscMemoryCopy     = 10
	MiscMemoryFill     = 11
	MiscTableInit      = 12
	MiscElemDrop       = 13
	MiscTableCopy      = 14
	MiscTableGrow      = 15
	MiscTableSize      = 16
	MiscTableFill      = 17
)

// Instructions after the prefix OpVector, as ranges with the same kind of
// operands.
const (
	vectorLastLoadStore = 0x0b
	vectorShuffle       = 0x0d
	vectorFirstLane     = 0x15
	vectorLastLane      = 0x22
	vectorFirstLoadLane = 0x54
	vectorLastLoadLane  = 0x5b
	vectorLoadZero32    = 0x5c
	vectorLoadZero64    = 0x5d
	vectorLast          = 0xff
)

// Instruction is one decoded instruction of a function body. It is written
// back from its decoded form in the shortest encoding. So our reader and the
// runtime cannot disagree about numbers that are encoded longer than
// necessary, or about bytes that have no meaning yet.
type Instruction struct {
	Op    byte   // the opcode or the prefix
	Sub   uint32 // the opcode after a prefix
	A, B  uint32 // indices, a label, or alignment and offset; for a br_table, A is the highest label
	lane  byte
	Value int64 // value of an integer constant or a block type
	raw   Stretch
	// Targets are the labels of a br_table, the default last; Count is their
	// number.
	Targets Stretch
	Count   int
}

// accessesMemory reports whether the instruction reads or writes memory.
func (i *Instruction) accessesMemory() bool {
	if i.Op == OpVector {
		return i.Sub <= vectorLastLoadStore || i.Sub >= vectorFirstLoadLane && i.Sub <= vectorLoadZero64
	}
	return i.Op >= OpI32Load && i.Op <= OpI64Store32
}

// Next reads one instruction.
func (c *Cursor) Next(i *Instruction) {
	*i = Instruction{Op: c.Byte("an instruction")}
	switch op := i.Op; {
	case !c.OK():
	case op == OpBlock || op == OpLoop || op == OpIf:
		i.Value = c.signedBits("a block type", 33)
	case op == OpBr || op == OpBrIf:
		i.A = c.U32("a label")
	case op == OpBrTable:
		c.branchTable(i)
	case op == OpCall || op == OpRefFunc:
		i.A = c.U32("a function index")
	case op == OpCallIndirect:
		i.A, i.B = c.U32("a type index"), c.U32("a table index")
	case op == OpSelectTyped:
		if c.U32("a number of types") != 1 {
			c.refuseDamaged("a select with more than one value")
		}
		i.A = uint32(c.valueType("a select"))
	case op >= OpLocalGet && op <= OpTableSet:
		i.A = c.U32("an index")
	case op >= OpI32Load && op <= OpI64Store32:
		i.A, i.B = c.U32("an alignment"), c.U32("an offset")
	case op == OpMemorySize || op == OpMemoryGrow:
		c.zero("a memory index")
	case op == OpI32Const:
		i.Value = c.signedBits("an i32", 32)
	case op == OpI64Const:
		i.Value = c.signedBits("an i64", 64)
	case op == OpF32Const:
		i.raw = c.bytes(4, "an f32")
	case op == OpF64Const:
		i.raw = c.bytes(8, "an f64")
	case op == OpRefNull:
		i.A = uint32(c.referenceType("a null"))
	case op == OpMisc:
		c.misc(i)
	case op == OpVector:
		c.vector(i)
	case op == OpUnreachable || op == OpNop || op == OpElse || op == OpEnd || op == OpReturn ||
		op == OpDrop || op == OpSelect || op >= OpI32Eqz && op <= OpI64Extend32S || op == OpRefIsNull:
	case op == 0x12 || op == 0x13:
		c.Refuse("tail calls are not supported; build without them")
	case op == 0xfe:
		c.Refuse("atomic instructions are not supported; build without threads")
	default:
		c.Refuse("instruction 0x%02x is not supported; build without proposals beyond WebAssembly 2.0", op)
	}
}

func (c *Cursor) branchTable(i *Instruction) {
	i.Count = c.count("labels", c.Remaining()) + 1
	i.Targets.Start = c.Pos
	for n := 0; n < i.Count && c.OK(); n++ {
		i.A = max(i.A, c.U32("a label"))
	}
	i.Targets.End = c.Pos
}

func (c *Cursor) misc(i *Instruction) {
	i.Sub = c.U32("an instruction")
	switch sub := i.Sub; {
	case !c.OK() || sub <= MiscLastConversion:
	case sub == MiscMemoryInit:
		i.A = c.U32("a data index")
		c.zero("a memory index")
	case sub == MiscMemoryCopy:
		c.zero("a memory index")
		c.zero("a memory index")
	case sub == MiscMemoryFill:
		c.zero("a memory index")
	case sub == MiscTableInit || sub == MiscTableCopy:
		i.A, i.B = c.U32("an index"), c.U32("a table index")
	case sub == MiscDataDrop || sub == MiscElemDrop || sub >= MiscTableGrow && sub <= MiscTableFill:
		i.A = c.U32("an index")
	default:
		c.Refuse("instruction 0xfc 0x%02x is not supported; build without proposals beyond WebAssembly 2.0", sub)
	}
}

func (c *Cursor) vector(i *Instruction) {
	at := c.Pos
	i.Sub = c.U32("an instruction")
	// The runtime reads only one byte of the number, and would see a different
	// number.
	width := c.Pos - at
	padded := width > 2 || width == 2 && i.Sub < 0x80
	switch sub := i.Sub; {
	case !c.OK():
	case padded:
		c.Refuse("instruction 0xfd 0x%02x is not in its shortest encoding", sub)
	case sub <= vectorLastLoadStore || sub == vectorLoadZero32 || sub == vectorLoadZero64:
		i.A, i.B = c.U32("an alignment"), c.U32("an offset")
	case sub == OpV128Const || sub == vectorShuffle:
		i.raw = c.bytes(16, "a vector")
	case sub >= vectorFirstLane && sub <= vectorLastLane:
		i.lane = c.Byte("a lane")
	case sub >= vectorFirstLoadLane && sub <= vectorLastLoadLane:
		i.A, i.B = c.U32("an alignment"), c.U32("an offset")
		i.lane = c.Byte("a lane")
	case sub > vectorLast:
		c.Refuse("instruction 0xfd 0x%02x is not supported; build without relaxed SIMD", sub)
	}
}

func (c *Cursor) bytes(n uint32, what string) Stretch {
	start := c.Skip(n, what)
	return Stretch{start, c.Pos}
}

func (c *Cursor) zero(what string) {
	if c.Byte(what) != 0 {
		c.refuseDamaged(what + " that is not 0")
	}
}

// signedBits reads a signed LEB128 of at most bits bits.
func (c *Cursor) signedBits(what string, bits uint) int64 {
	var value int64
	for shift := uint(0); c.OK(); shift += 7 {
		b := c.Byte(what)
		value |= int64(b&0x7f) << shift
		if left := bits - shift; left < 7 {
			// The unused bits of the last byte must repeat the sign.
			if above := int8(b<<1) >> left; b&0x80 != 0 || above != 0 && above != -1 {
				c.refuseDamaged(what + " is too long")
				return 0
			}
		}
		if b&0x80 == 0 {
			if shift < 57 && b&0x40 != 0 {
				value |= -1 << (shift + 7)
			}
			return value
		}
	}
	return 0
}

// appendInstruction appends i, which was read from source, in its shortest
// encoding.
func appendInstruction(dst, source []byte, i *Instruction) []byte {
	dst = append(dst, i.Op)
	switch op := i.Op; {
	case op == OpBlock || op == OpLoop || op == OpIf || op == OpI32Const || op == OpI64Const:
		return AppendSigned(dst, i.Value)
	case op == OpBrTable:
		dst = binary.AppendUvarint(dst, uint64(i.Count-1))
		c := &Cursor{data: source, Pos: i.Targets.Start, end: i.Targets.End}
		for range i.Count {
			dst = binary.AppendUvarint(dst, uint64(c.U32("a label")))
		}
		return dst
	case op == OpSelectTyped:
		return append(dst, 1, byte(i.A))
	case op == OpRefNull:
		return append(dst, byte(i.A))
	case op == OpMemorySize || op == OpMemoryGrow:
		return append(dst, 0)
	case op == OpCallIndirect || op >= OpI32Load && op <= OpI64Store32:
		return appendPair(dst, i)
	case op == OpBr || op == OpBrIf || op == OpCall || op == OpRefFunc || op >= OpLocalGet && op <= OpTableSet:
		return binary.AppendUvarint(dst, uint64(i.A))
	case op == OpF32Const || op == OpF64Const:
		return append(dst, source[i.raw.Start:i.raw.End]...)
	case op == OpMisc:
		return appendMisc(binary.AppendUvarint(dst, uint64(i.Sub)), i)
	case op == OpVector:
		return appendVector(binary.AppendUvarint(dst, uint64(i.Sub)), source, i)
	}
	return dst
}

func appendPair(dst []byte, i *Instruction) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(i.A)), uint64(i.B))
}

func appendMisc(dst []byte, i *Instruction) []byte {
	switch i.Sub {
	case MiscMemoryInit:
		return append(binary.AppendUvarint(dst, uint64(i.A)), 0)
	case MiscMemoryCopy:
		return append(dst, 0, 0)
	case MiscMemoryFill:
		return append(dst, 0)
	case MiscTableInit, MiscTableCopy:
		return appendPair(dst, i)
	case MiscDataDrop, MiscElemDrop, MiscTableGrow, MiscTableSize, MiscTableFill:
		return binary.AppendUvarint(dst, uint64(i.A))
	}
	return dst
}

func appendVector(dst, source []byte, i *Instruction) []byte {
	switch sub := i.Sub; {
	case sub <= vectorLastLoadStore || sub == vectorLoadZero32 || sub == vectorLoadZero64:
		return appendPair(dst, i)
	case sub == OpV128Const || sub == vectorShuffle:
		return append(dst, source[i.raw.Start:i.raw.End]...)
	case sub >= vectorFirstLane && sub <= vectorLastLane:
		return append(dst, i.lane)
	case sub >= vectorFirstLoadLane && sub <= vectorLastLoadLane:
		return append(appendPair(dst, i), i.lane)
	}
	return dst
}

// AppendSigned appends a signed LEB128 in its shortest encoding.
func AppendSigned(dst []byte, value int64) []byte {
	for {
		b := byte(value & 0x7f)
		value >>= 7
		if value == 0 && b&0x40 == 0 || value == -1 && b&0x40 != 0 {
			return append(dst, b)
		}
		dst = append(dst, b|0x80)
	}
}
