package quickjs

import (
	"encoding/binary"

	"github.com/hostd/hostd/host/guest/wasm"
)

// Instructions that package wasm does not name.
const (
	opI32Load    = 0x28
	opI64Load    = 0x29
	opI32Load8   = 0x2d
	opI32Store   = 0x36
	opI64Store   = 0x37
	opI32Store8  = 0x3a
	opI32Store16 = 0x3b
	opI32Eq      = 0x46
	opI32GtS     = 0x4a
	opI32Shl     = 0x74
	opI32LeU     = 0x4d
	opI64Eqz     = 0x50
	opI64Ne      = 0x52
	opI32Wrap    = 0xa7
	opI64ShrU    = 0x88
	opI64And     = 0x83
	opI64Xor     = 0x85
	align8       = 0
	align32      = 2
	align64      = 3
	blockVoid    = wasm.BlockVoid
	memoryOfCopy = 0
)

// code is the body of a function under construction. Its methods return it, so
// that a body reads like a list of instructions.
type code struct{ bytes []byte }

func (c *code) op(ops ...byte) *code {
	c.bytes = append(c.bytes, ops...)
	return c
}

// index appends an instruction and its index.
func (c *code) index(op byte, index uint32) *code {
	c.bytes = binary.AppendUvarint(append(c.bytes, op), uint64(index))
	return c
}

func (c *code) get(local uint32) *code { return c.index(wasm.OpLocalGet, local) }
func (c *code) set(local uint32) *code { return c.index(wasm.OpLocalSet, local) }
func (c *code) tee(local uint32) *code { return c.index(wasm.OpLocalTee, local) }

func (c *code) global(index uint32) *code    { return c.index(wasm.OpGlobalGet, index) }
func (c *code) setGlobal(index uint32) *code { return c.index(wasm.OpGlobalSet, index) }
func (c *code) call(function uint32) *code   { return c.index(wasm.OpCall, function) }

func (c *code) i32(value uint32) *code {
	c.bytes = wasm.AppendSigned(append(c.bytes, wasm.OpI32Const), int64(int32(value)))
	return c
}

func (c *code) i64(value uint64) *code {
	c.bytes = wasm.AppendSigned(append(c.bytes, wasm.OpI64Const), int64(value))
	return c
}

// access appends a load or a store at a constant offset from an address.
func (c *code) access(op byte, align, offset uint32) *code {
	c.bytes = binary.AppendUvarint(append(c.bytes, op), uint64(align))
	c.bytes = binary.AppendUvarint(c.bytes, uint64(offset))
	return c
}

func (c *code) load32(offset uint32) *code  { return c.access(opI32Load, align32, offset) }
func (c *code) load64(offset uint32) *code  { return c.access(opI64Load, align64, offset) }
func (c *code) load8(offset uint32) *code   { return c.access(opI32Load8, align8, offset) }
func (c *code) store32(offset uint32) *code { return c.access(opI32Store, align32, offset) }
func (c *code) store64(offset uint32) *code { return c.access(opI64Store, align64, offset) }
func (c *code) store8(offset uint32) *code  { return c.access(opI32Store8, align8, offset) }

// when begins a block that runs if the number on the stack is not 0; end ends
// it.
func (c *code) when() *code { return c.op(wasm.OpIf, blockVoid) }
func (c *code) end() *code  { return c.op(wasm.OpEnd) }

// copyMemory pops a destination, a source and a length.
func (c *code) copyMemory() *code {
	c.bytes = binary.AppendUvarint(append(c.bytes, wasm.OpMisc), wasm.MiscMemoryCopy)
	return c.op(memoryOfCopy, memoryOfCopy)
}

// fillMemory pops a destination, a byte and a length.
func (c *code) fillMemory() *code {
	c.bytes = binary.AppendUvarint(append(c.bytes, wasm.OpMisc), wasm.MiscMemoryFill)
	return c.op(memoryOfCopy)
}

// body returns the function body, with its local variables by type.
func (c *code) body(locals string) []byte {
	out := binary.AppendUvarint(nil, uint64(len(locals)))
	for i := range len(locals) {
		out = append(out, 1, locals[i])
	}
	return append(append(out, c.bytes...), wasm.OpEnd)
}
