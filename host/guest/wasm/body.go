package wasm

import (
	"encoding/binary"
)

// pendingLimit is how much a loop that calls nothing keeps in a local before
// it settles: adding to a local costs a fraction of what adding to a global
// does.
const pendingLimit = 1024

// uncheckedCost is how much a function may cost that only charges.
const uncheckedCost = 64

// A frame of a function that calls others is counted in bytes, as the compiler
// lays frames out at most: a slot for each value that must survive a call. The
// sum is bounded by StackBytes.
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
	next    int // point
	pending bool
	wrapped bool
	kept    uint32 // the first of the locals that are added
	// open are the blocks that are open, as uploaded, and height how many are
	// as written.
	open   []openBlock
	height int

	// Inside the function's region, those of open from within on are too.
	inRegion bool
	within   int
	looked   int // times behind calls
	// Inside a copy of a loop, refund is what is given back where the loop is
	// left to one of open below refundBelow.
	refund      int64
	refundBelow int
}

// openBlock is a block of the module.
type openBlock struct {
	label int  // its height as written
	outer bool // a loop that was given one around it
	late  int  // the point that is charged on the way back to it, or 0
}

// body returns a function's locals and instructions with metering.
//
// A function that keeps fuel pending, or counts its frame and has no region
// for it, has its instructions in a block, so that every way out of it comes
// by the end of that block. Labels keep their numbers: the one that was the
// function's is the block's now.
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

// locals copies the declarations of locals, and adds those for pending fuel
// and for the stack that was left.
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

// pendingLocal is the index of the local with fuel that is not settled, and
// stackLocal of the one with the bytes of stack that were left at the entry.
func (b *bodyWriter) pendingLocal() uint32 { return b.kept }
func (b *bodyWriter) stackLocal() uint32   { return b.kept + 1 }

// enter charges for the function's first stretch. A short function that has no
// loop, or has not called anything yet, leaves the look at the fuel to others:
// whoever calls it for ever is a loop or a recursion.
func (b *bodyWriter) enter() {
	b.next = 1
	cost := b.plan.owed
	if !b.plan.byCallers {
		cost += b.plan.points[0].cost
	} else if b.plan.deep && !b.wrapped {
		return // what it owes is paid at its region
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
		if b.plan.deep { // the way back out of a recursion
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
	for c.Left() > 0 {
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
		b.index(i.Op, b.shifted(i.A))
		return
	case OpRefFunc:
		b.index(OpGlobalGet, b.reference(i.A))
		return
	case OpMemoryGrow, OpMisc:
		if i.Bulk() {
			b.index(OpCall, b.bulkIndex(i))
			return
		}
	}
	b.bytes = AppendInstruction(b.bytes, b.m.Source, i)
}

func (b *bodyWriter) push(outer bool) {
	b.open = append(b.open, openBlock{label: b.height, outer: outer})
	b.height++
}

// label is the number of a label as written.
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

// loop begins a loop. One that calls nothing is put into another, which is
// where it settles: a call inside the loop, however rarely made, would have
// its variables live in memory.
func (b *bodyWriter) loop(i *Instruction) {
	outer := b.plan.pending(b.plan.points[b.next]) && !b.hasParameters(i.Value)
	if outer {
		b.bytes = AppendInstruction(b.bytes, b.m.Source, i)
		b.height++
		b.settleIfMuch()
	}
	b.bytes = AppendInstruction(b.bytes, b.m.Source, i)
	b.push(outer)
	if b.plan.points[b.next].late {
		b.open[len(b.open)-1].late = b.next
	}
}

// hasParameters reports whether a block of the type takes operands.
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

// much leaves 1 when the pending fuel is worth settling.
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

// point charges where the plan says to.
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
			// The compiler makes one compare and branch of an if, and five
			// instructions of a br_if.
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
