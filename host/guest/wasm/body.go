package wasm

import (
	"encoding/binary"
)

// pendingLimit is how much fuel a loop without calls accumulates in a local
// before it settles. Adding to a local costs a fraction of adding to a global.
const pendingLimit = 1024

// uncheckedCost is the maximum cost of a function that charges at its entry
// without checking.
const uncheckedCost = 64

// The frame of a function that calls others is counted in bytes, according to
// the compiler's maximum frame layout: one slot for each value that must
// survive a call. StackBytes bounds the sum of all frames.
const (
	frameBytes       = 64
	frameLocalBytes  = 8
	frameInstruction = 2
)

func (b *bodyPlan) frameBytes(params int) int64 {
	return int64(frameBytes + frameLocalBytes*(params+b.locals) + frameInstruction*b.instructions + b.credit)
}

// bodyWriter writes one function body with metering.
type bodyWriter struct {
	*rewriter
	code
	plan    *bodyPlan
	params  int
	next    int // index of the next point
	pending bool
	wrapped bool
	kept    uint32 // index of the first added local
	// open lists the open blocks of the module, innermost last. height is the
	// number of open blocks in the output.
	open   []openBlock
	height int

	// Set inside the function's region. The blocks open[within:] belong to the
	// region.
	inRegion bool
	within   int
	looked   int // inline checks written by lookBehind so far
	// Inside a copy of an unrolled loop, refund is the fuel to give back when the
	// loop is left by a branch to a block below open[refundBelow].
	refund      int64
	refundBelow int
}

// openBlock is a block of the module.
type openBlock struct {
	label int  // height of the block in the output
	outer bool // the block is a loop with an added loop around it
	late  int  // point that is charged on branches back to the loop, or 0
}

// body returns a function's locals and instructions with metering.
//
// If a function keeps fuel pending, or counts its frame but has no region for
// it, its instructions are wrapped in a block, so that every exit passes the
// end of that block. The numbers of labels do not change: the label that
// denoted the function now denotes the block.
func (r *rewriter) body(function int) []byte {
	m := r.m
	signature := m.Types[m.Functions[function]]
	plan := &m.plans[function]
	b := &bodyWriter{rewriter: r, plan: plan, params: len(signature.Params)}
	b.kept = uint32(len(signature.Params) + plan.locals)
	b.pending = plan.hasPending()
	b.wrapped = b.pending || plan.deep && !plan.region.exists()
	b.locals(Stretch{Start: m.Bodies[function].Start, End: plan.code.Start})
	b.enter()
	if b.wrapped {
		b.emit(OpBlock)
		b.bytes = AppendSigned(b.bytes, r.blockType(signature.Results))
	}
	b.push(false)
	b.instructions()
	if b.wrapped {
		b.leave()
		b.emit(OpEnd)
	}
	return b.bytes
}

// locals copies the declarations of locals and adds two i64 locals if needed:
// one for pending fuel and one that saves the stack counter.
func (b *bodyWriter) locals(declared Stretch) {
	c := b.m.Part(declared)
	groups := c.U32("groups")
	total := uint64(groups)
	if b.pending || b.plan.deep {
		total++
	}
	b.bytes = binary.AppendUvarint(b.bytes, total)
	for range groups {
		b.bytes = binary.AppendUvarint(b.bytes, uint64(c.U32("a number")))
		b.emit(c.Byte("a type"))
	}
	if b.pending || b.plan.deep {
		b.emit(2, TypeI64)
	}
}

// pendingLocal returns the index of the local with unsettled fuel. stackLocal
// returns the index of the local with the stack bytes that were left at entry.
func (b *bodyWriter) pendingLocal() uint32 { return b.kept }
func (b *bodyWriter) stackLocal() uint32   { return b.kept + 1 }

// enter charges the function's first stretch. A short function that has no
// loop, or has not called anything yet, does not check the fuel, because it
// can only run endlessly if a loop or a recursion calls it, and loops and
// recursions check the fuel.
func (b *bodyWriter) enter() {
	b.next = 1
	cost := b.plan.owed
	if !b.plan.byCallers {
		cost += b.plan.points[0].cost
	} else if b.plan.deep && !b.wrapped {
		return // the region charges the cost of the function
	}
	if cost > 0 {
		b.charge(&b.code, cost)
	}
	switch {
	case b.plan.deep && b.wrapped:
		b.takeFrame()
	case cost > uncheckedCost || !b.plan.deep && len(b.plan.calls) > 0:
		b.check(&b.code)
	}
}

func (b *bodyWriter) leave() {
	if b.plan.hasPending() {
		b.index(OpGlobalGet, b.fuel)
		b.index(OpLocalGet, b.pendingLocal())
		b.emit(OpI64Sub)
		b.index(OpGlobalSet, b.fuel)
		if b.plan.deep { // the function may be returning from a deep recursion
			b.check(&b.code)
		}
	}
	if b.plan.deep {
		b.giveFrame()
	}
}

func (b *bodyWriter) instructions() {
	c := b.m.Part(b.plan.code)
	var i Instruction
	for c.Remaining() > 0 {
		if b.plan.deep && !b.wrapped && c.Pos == b.plan.region.start {
			b.enterRegion()
		}
		c.Next(&i)
		b.instruction(c, &i)
		if b.inRegion && c.Pos == b.plan.region.end {
			b.giveFrame()
			b.inRegion = false
		}
		if b.next < len(b.plan.points) && b.plan.points[b.next].at == c.Pos {
			b.point(b.plan.points[b.next])
			b.next++
		}
	}
}

func (b *bodyWriter) instruction(c *Cursor, i *Instruction) {
	switch i.Op {
	case OpLoop:
		if b.plan.points[b.next].copies > 0 {
			b.unrolledLoop(c, i)
		} else {
			b.loop(i)
		}
		return
	case OpBlock, OpIf:
		b.push(false)
	case OpEnd:
		b.end()
		return
	case OpBr, OpBrIf:
		b.branch(i)
		return
	case OpBrTable:
		b.branchTable(i)
		return
	case OpReturn:
		b.leaving(0)
		if b.wrapped {
			b.index(OpBr, b.label(uint32(len(b.open)-1)))
			return
		}
	case OpCall:
		b.index(i.Op, b.shiftIndex(i.A))
		return
	case OpRefFunc:
		b.index(OpGlobalGet, b.reference(i.A))
		return
	case OpMemoryGrow, OpMisc:
		if i.bulk() {
			b.index(OpCall, b.bulkIndex(i))
			return
		}
	}
	b.bytes = appendInstruction(b.bytes, b.m.Source, i)
}

func (b *bodyWriter) push(outer bool) {
	b.open = append(b.open, openBlock{label: b.height, outer: outer})
	b.height++
}

// label returns the number of a label in the output.
func (b *bodyWriter) label(label uint32) uint32 {
	return uint32(b.height - 1 - b.open[len(b.open)-1-int(label)].label)
}

func (b *bodyWriter) branchTable(i *Instruction) {
	b.emit(OpBrTable)
	b.bytes = binary.AppendUvarint(b.bytes, uint64(i.Count-1))
	c := b.m.Part(i.Targets)
	for range i.Count {
		b.bytes = binary.AppendUvarint(b.bytes, uint64(b.label(c.U32("a label"))))
	}
}

// loop begins a loop. A loop without calls is nested in an added outer loop,
// where its pending fuel is settled. A call inside the loop itself, however
// rarely made, would force the compiler to keep the loop's variables in memory.
func (b *bodyWriter) loop(i *Instruction) {
	outer := b.plan.pending(b.plan.points[b.next]) && !b.hasParameters(i.Value)
	if outer {
		b.bytes = appendInstruction(b.bytes, b.m.Source, i)
		b.height++
		b.settleIfMuch()
	}
	b.bytes = appendInstruction(b.bytes, b.m.Source, i)
	b.push(outer)
	if b.plan.points[b.next].late {
		b.open[len(b.open)-1].late = b.next
	}
}

// hasParameters reports whether a block of the type has operands.
func (b *bodyWriter) hasParameters(blockType int64) bool {
	return blockType >= 0 && b.m.Types[blockType].Params != ""
}

func (b *bodyWriter) end() {
	last := b.open[len(b.open)-1]
	b.open = b.open[:len(b.open)-1]
	b.height--
	b.emit(OpEnd)
	if last.outer {
		b.emit(OpEnd)
		b.height--
	}
}

// much pushes 1 if the pending fuel should be settled.
func (b *bodyWriter) much() {
	b.index(OpLocalGet, b.pendingLocal())
	b.i64(pendingLimit)
	b.emit(OpI64GtU)
}

func (b *bodyWriter) settleIfMuch() {
	b.much()
	b.emit(OpIf, BlockVoid)
	b.index(OpLocalGet, b.pendingLocal())
	b.index(OpCall, b.settle)
	b.index(OpLocalSet, b.pendingLocal())
	b.emit(OpEnd)
}

// point writes the charge of a point, as planned.
func (b *bodyWriter) point(p point) {
	if p.late {
		return
	}
	if !b.plan.pending(p) {
		if p.looks {
			b.lookBehind(p.cost)
			return
		}
		b.charge(&b.code, p.cost)
		if p.kind == pointHeader {
			b.check(&b.code)
		}
		return
	}
	if p.kind == pointHeader {
		if b.open[len(b.open)-1].outer {
			// Write an if, because the compiler turns it into one compare and
			// branch, and a br_if into five instructions.
			b.much()
			b.emit(OpIf, BlockVoid)
			b.index(OpBr, 2)
			b.emit(OpEnd)
		} else {
			b.settleIfMuch()
		}
	}
	b.addPending(int64(p.cost))
	if p.long {
		b.settleIfMuch()
	}
}

func (b *bodyWriter) addPending(cost int64) {
	b.index(OpLocalGet, b.pendingLocal())
	b.i64(cost)
	b.emit(OpI64Add)
	b.index(OpLocalSet, b.pendingLocal())
}
