package engine

import "encoding/binary"

// Instructions that are looked at one by one: control flow, calls, and those
// with an index or a length.
const (
	opUnreachable  = 0x00
	opNop          = 0x01
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opDrop         = 0x1a
	opSelect       = 0x1b
	opSelectTyped  = 0x1c
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalSet    = 0x24
	opTableGet     = 0x25
	opTableSet     = 0x26
	opI32Load      = 0x28
	opI64Store32   = 0x3e
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Eqz       = 0x45
	opI32Ne        = 0x47
	opI32LtU       = 0x49
	opI32GtU       = 0x4b
	opI64LtS       = 0x53
	opI64GtU       = 0x56
	opI32Add       = 0x6a
	opI32Sub       = 0x6b
	opI32Or        = 0x72
	opI32ShrU      = 0x76
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64Mul       = 0x7e
	opI64Or        = 0x84
	opI64Shl       = 0x86
	opI64ExtendU   = 0xad
	blockVoid      = 0x40
	blockVoidType  = -64 // as a number
	opI64Extend32S = 0xc4
	opRefIsNull    = 0xd1
	opMisc         = 0xfc
)

// Instructions behind the prefix opMisc.
const (
	miscLastConversion = 7
	miscMemoryInit     = 8
	miscDataDrop       = 9
	miscMemoryCopy     = 10
	miscMemoryFill     = 11
	miscTableInit      = 12
	miscElemDrop       = 13
	miscTableCopy      = 14
	miscTableGrow      = 15
	miscTableSize      = 16
	miscTableFill      = 17
)

// Instructions behind the prefix opVector, in the ranges that share a kind of
// operand.
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

// instruction is one instruction of a function body with its operands decoded.
// It is written again from what was decoded, in the shortest form: how a
// reader takes a number that is written longer than needed, or a byte that
// means nothing yet, is then never a question.
type instruction struct {
	op    byte   // or the prefix
	sub   uint32 // behind a prefix
	a, b  uint32 // indices, a label, or alignment and offset
	lane  byte
	value int64 // of an integer constant, or of a block type
	raw   stretch
	// targets are the labels of a br_table, the default last, and count how
	// many they are.
	targets stretch
	count   int
}

// accessesMemory reports whether the instruction reads or writes memory.
func (i *instruction) accessesMemory() bool {
	if i.op == opVector {
		return i.sub <= vectorLastLoadStore || i.sub >= vectorFirstLoadLane && i.sub <= vectorLoadZero64
	}
	return i.op >= opI32Load && i.op <= opI64Store32
}

// next reads one instruction.
func (c *cursor) next(i *instruction) {
	*i = instruction{op: c.byte("an instruction")}
	switch op := i.op; {
	case !c.ok():
	case op == opBlock || op == opLoop || op == opIf:
		i.value = c.signedBits("a block type", 33)
	case op == opBr || op == opBrIf:
		i.a = c.u32("a label")
	case op == opBrTable:
		c.branchTable(i)
	case op == opCall || op == opRefFunc:
		i.a = c.u32("a function index")
	case op == opCallIndirect:
		i.a, i.b = c.u32("a type index"), c.u32("a table index")
	case op == opSelectTyped:
		if c.u32("a number of types") != 1 {
			c.damaged("a select of more than one value")
		}
		i.a = uint32(c.valueType("a select"))
	case op >= opLocalGet && op <= opTableSet:
		i.a = c.u32("an index")
	case op >= opI32Load && op <= opI64Store32:
		i.a, i.b = c.u32("an alignment"), c.u32("an offset")
	case op == opMemorySize || op == opMemoryGrow:
		c.zero("a memory index")
	case op == opI32Const:
		i.value = c.signedBits("an i32", 32)
	case op == opI64Const:
		i.value = c.signedBits("an i64", 64)
	case op == opF32Const:
		i.raw = c.bytes(4, "an f32")
	case op == opF64Const:
		i.raw = c.bytes(8, "an f64")
	case op == opRefNull:
		i.a = uint32(c.referenceType("a null"))
	case op == opMisc:
		c.misc(i)
	case op == opVector:
		c.vector(i)
	case op == opUnreachable || op == opNop || op == opElse || op == opEnd || op == opReturn ||
		op == opDrop || op == opSelect || op >= opI32Eqz && op <= opI64Extend32S || op == opRefIsNull:
	case op == 0x12 || op == 0x13:
		c.refuse("tail calls are not supported; build without them")
	case op == 0xfe:
		c.refuse("atomic instructions are not supported; build without threads")
	default:
		c.refuse("instruction 0x%02x is not supported; build without proposals beyond WebAssembly 2.0", op)
	}
}

func (c *cursor) branchTable(i *instruction) {
	i.count = c.count("labels", c.left()) + 1
	i.targets.start = c.pos
	for n := 0; n < i.count && c.ok(); n++ {
		c.u32("a label")
	}
	i.targets.end = c.pos
}

func (c *cursor) misc(i *instruction) {
	i.sub = c.u32("an instruction")
	switch sub := i.sub; {
	case !c.ok() || sub <= miscLastConversion:
	case sub == miscMemoryInit:
		i.a = c.u32("a data index")
		c.zero("a memory index")
	case sub == miscMemoryCopy:
		c.zero("a memory index")
		c.zero("a memory index")
	case sub == miscMemoryFill:
		c.zero("a memory index")
	case sub == miscTableInit || sub == miscTableCopy:
		i.a, i.b = c.u32("an index"), c.u32("a table index")
	case sub == miscDataDrop || sub == miscElemDrop || sub >= miscTableGrow && sub <= miscTableFill:
		i.a = c.u32("an index")
	default:
		c.refuse("instruction 0xfc 0x%02x is not supported; build without proposals beyond WebAssembly 2.0", sub)
	}
}

func (c *cursor) vector(i *instruction) {
	at := c.pos
	i.sub = c.u32("an instruction")
	// The runtime looks at one byte of the number, and would see another one.
	width := c.pos - at
	padded := width > 2 || width == 2 && i.sub < 0x80
	switch sub := i.sub; {
	case !c.ok():
	case padded:
		c.refuse("instruction 0xfd 0x%02x is not written as short as can be", sub)
	case sub <= vectorLastLoadStore || sub == vectorLoadZero32 || sub == vectorLoadZero64:
		i.a, i.b = c.u32("an alignment"), c.u32("an offset")
	case sub == opV128Const || sub == vectorShuffle:
		i.raw = c.bytes(16, "a vector")
	case sub >= vectorFirstLane && sub <= vectorLastLane:
		i.lane = c.byte("a lane")
	case sub >= vectorFirstLoadLane && sub <= vectorLastLoadLane:
		i.a, i.b = c.u32("an alignment"), c.u32("an offset")
		i.lane = c.byte("a lane")
	case sub > vectorLast:
		c.refuse("instruction 0xfd 0x%02x is not supported; build without relaxed SIMD", sub)
	}
}

func (c *cursor) bytes(n uint32, what string) stretch {
	start := c.skip(n, what)
	return stretch{start, c.pos}
}

func (c *cursor) zero(what string) {
	if c.byte(what) != 0 {
		c.damaged(what + " that is not 0")
	}
}

// signedBits reads a signed LEB128 of at most bits bits.
func (c *cursor) signedBits(what string, bits uint) int64 {
	var value int64
	for shift := uint(0); c.ok(); shift += 7 {
		b := c.byte(what)
		value |= int64(b&0x7f) << shift
		if left := bits - shift; left < 7 {
			// What lies above the number in its last byte repeats its sign.
			if above := int8(b<<1) >> left; b&0x80 != 0 || above != 0 && above != -1 {
				c.damaged(what + " is too long")
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

// appendInstruction writes i, which was read from wasm.
func appendInstruction(dst, wasm []byte, i *instruction) []byte {
	dst = append(dst, i.op)
	switch op := i.op; {
	case op == opBlock || op == opLoop || op == opIf || op == opI32Const || op == opI64Const:
		return appendSigned(dst, i.value)
	case op == opBrTable:
		dst = binary.AppendUvarint(dst, uint64(i.count-1))
		c := &cursor{data: wasm, pos: i.targets.start, end: i.targets.end}
		for range i.count {
			dst = binary.AppendUvarint(dst, uint64(c.u32("a label")))
		}
		return dst
	case op == opSelectTyped:
		return append(dst, 1, byte(i.a))
	case op == opRefNull:
		return append(dst, byte(i.a))
	case op == opMemorySize || op == opMemoryGrow:
		return append(dst, 0)
	case op == opCallIndirect || op >= opI32Load && op <= opI64Store32:
		return appendPair(dst, i)
	case op == opBr || op == opBrIf || op == opCall || op == opRefFunc || op >= opLocalGet && op <= opTableSet:
		return binary.AppendUvarint(dst, uint64(i.a))
	case op == opF32Const || op == opF64Const:
		return append(dst, wasm[i.raw.start:i.raw.end]...)
	case op == opMisc:
		return appendMisc(binary.AppendUvarint(dst, uint64(i.sub)), i)
	case op == opVector:
		return appendVector(binary.AppendUvarint(dst, uint64(i.sub)), wasm, i)
	}
	return dst
}

func appendPair(dst []byte, i *instruction) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(i.a)), uint64(i.b))
}

func appendMisc(dst []byte, i *instruction) []byte {
	switch i.sub {
	case miscMemoryInit:
		return append(binary.AppendUvarint(dst, uint64(i.a)), 0)
	case miscMemoryCopy:
		return append(dst, 0, 0)
	case miscMemoryFill:
		return append(dst, 0)
	case miscTableInit, miscTableCopy:
		return appendPair(dst, i)
	case miscDataDrop, miscElemDrop, miscTableGrow, miscTableSize, miscTableFill:
		return binary.AppendUvarint(dst, uint64(i.a))
	}
	return dst
}

func appendVector(dst, wasm []byte, i *instruction) []byte {
	switch sub := i.sub; {
	case sub <= vectorLastLoadStore || sub == vectorLoadZero32 || sub == vectorLoadZero64:
		return appendPair(dst, i)
	case sub == opV128Const || sub == vectorShuffle:
		return append(dst, wasm[i.raw.start:i.raw.end]...)
	case sub >= vectorFirstLane && sub <= vectorLastLane:
		return append(dst, i.lane)
	case sub >= vectorFirstLoadLane && sub <= vectorLastLoadLane:
		return append(appendPair(dst, i), i.lane)
	}
	return dst
}

// appendSigned appends a signed LEB128 in its shortest form.
func appendSigned(dst []byte, value int64) []byte {
	for {
		b := byte(value & 0x7f)
		value >>= 7
		if value == 0 && b&0x40 == 0 || value == -1 && b&0x40 != 0 {
			return append(dst, b)
		}
		dst = append(dst, b|0x80)
	}
}
