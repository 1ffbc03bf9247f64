package wasm

import (
	"encoding/binary"
)

// code is a function body being written.
type code struct{ bytes []byte }

func (c *code) emit(bytes ...byte) { c.bytes = append(c.bytes, bytes...) }

// index emits an instruction and its index operand.
func (c *code) index(op byte, index uint32) {
	c.bytes = binary.AppendUvarint(append(c.bytes, op), uint64(index))
}

func (c *code) i32(value int32) {
	c.bytes = AppendSigned(append(c.bytes, OpI32Const), int64(value))
}

func (c *code) i64(value int64) { c.bytes = AppendSigned(append(c.bytes, OpI64Const), value) }

// metering holds the indices of the functions and globals that metering adds to
// a module.
type metering struct {
	refuel uint32 // index of the imported function, after the module's own imports
	settle uint32 // index of the first added function, after the module's own
	fuel   uint32 // index of the global with the fuel left in the slice
	stack  uint32 // index of the global with the stack bytes left
}

// shiftIndex returns the new index of a function. refuel is inserted between the
// functions that the module imports and its own functions.
func (w *metering) shiftIndex(function uint32) uint32 {
	if function < w.refuel {
		return function
	}
	return function + 1
}

// charge subtracts cost from the slice.
func (w *metering) charge(c *code, cost uint32) {
	c.index(OpGlobalGet, w.fuel)
	c.i64(int64(cost))
	c.emit(OpI64Sub)
	c.index(OpGlobalSet, w.fuel)
}

// check calls the host if the slice is spent.
func (w *metering) check(c *code) {
	c.index(OpGlobalGet, w.fuel)
	w.refuelIfNegative(c)
}

func (w *metering) refuelIfNegative(c *code) {
	c.i64(0)
	c.emit(OpI64LtS, OpIf, BlockVoid)
	c.index(OpCall, w.refuel)
	c.emit(OpEnd)
}

// settleBody returns the body of settle: (spent i64) -> i64, which charges the
// fuel that a loop has kept pending, and returns 0.
func (w *metering) settleBody() []byte {
	c := &code{}
	c.index(OpGlobalGet, w.fuel)
	c.index(OpLocalGet, 0)
	c.emit(OpI64Sub)
	c.index(OpGlobalSet, w.fuel)
	w.check(c)
	c.i64(0)
	return c.bytes
}
