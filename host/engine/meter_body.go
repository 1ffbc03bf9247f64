package engine

import "encoding/binary"

// pendingLimit is how much a loop that calls nothing keeps in a local before
// it settles: adding to a local costs a fraction of what adding to a global
// does.
const pendingLimit = 1024

// A frame of a function that calls others is counted in bytes, as the compiler
// lays frames out at most: a slot for each value that must survive a call. The
// sum is bounded by StackBytes.
const (
	frameBytes       = 64
	frameLocalBytes  = 8
	frameInstruction = 2
)

func (b *bodyPlan) frameBytes(params int) int64 {
	return int64(frameBytes + frameLocalBytes*(params+b.locals) + frameInstruction*b.instructions)
}

// bodyWriter writes one function body with metering.
type bodyWriter struct {
	*rewriter
	code
	plan    *bodyPlan
	params  int
	next    int // point
	depth   int // of blocks that are open
	wrapped bool
}

// body returns a function's locals and instructions with metering.
//
// A function that counts its frame, or keeps fuel pending, has its
// instructions in a block, so that every way out of it comes by the end of
// that block. Labels keep their numbers: the one that was the function's is
// the block's now.
func (r *rewriter) body(function int) []byte {
	m := r.m
	signature := m.types[m.functions[function]]
	plan := &m.plans[function]
	b := &bodyWriter{rewriter: r, plan: plan, params: len(signature.params)}
	b.wrapped = plan.deep || plan.hasPending()
	b.locals(stretch{m.bodies[function].start, plan.code.start})
	b.enter()
	if b.wrapped {
		b.emit(opBlock)
		b.bytes = appendSigned(b.bytes, r.blockType(signature.results))
	}
	b.instructions()
	if b.wrapped {
		b.leave()
		b.emit(opEnd)
	}
	return b.bytes
}

// locals copies the declarations of locals, and adds the one for pending fuel.
func (b *bodyWriter) locals(declared stretch) {
	c := &cursor{data: b.m.wasm, pos: declared.start, end: declared.end}
	groups := c.u32("groups")
	total := uint64(groups)
	if b.plan.hasPending() {
		total++
	}
	b.bytes = binary.AppendUvarint(b.bytes, total)
	for range groups {
		b.bytes = binary.AppendUvarint(b.bytes, uint64(c.u32("a number")))
		b.emit(c.byte("a type"))
	}
	if b.plan.hasPending() {
		b.emit(1, typeI64)
	}
}

// pendingLocal is the index of the local with fuel that is not settled.
func (b *bodyWriter) pendingLocal() uint32 { return uint32(b.params + b.plan.locals) }

func (b *bodyWriter) enter() {
	b.charge(&b.code, b.plan.points[0].cost)
	b.next = 1
	b.index(opGlobalGet, b.fuel)
	if b.plan.deep {
		move(&b.code, b.stack, -b.plan.frameBytes(b.params))
		b.index(opGlobalGet, b.stack)
		b.emit(opI64Or) // negative if either is
	}
	b.refuelIfNegative(&b.code)
}

func (b *bodyWriter) leave() {
	if b.plan.hasPending() {
		b.index(opGlobalGet, b.fuel)
		b.index(opLocalGet, b.pendingLocal())
		b.emit(opI64Sub)
		b.index(opGlobalSet, b.fuel)
	}
	if b.plan.deep {
		move(&b.code, b.stack, b.plan.frameBytes(b.params))
	}
}

func (b *bodyWriter) instructions() {
	c := &cursor{data: b.m.wasm, pos: b.plan.code.start, end: b.plan.code.end}
	var i instruction
	for c.left() > 0 {
		c.next(&i)
		b.instruction(&i)
		if b.next < len(b.plan.points) && b.plan.points[b.next].at == c.pos {
			b.point(b.plan.points[b.next])
			b.next++
		}
	}
}

func (b *bodyWriter) instruction(i *instruction) {
	switch i.op {
	case opBlock, opLoop, opIf:
		b.depth++
	case opEnd:
		b.depth--
	case opReturn:
		if b.wrapped {
			b.index(opBr, uint32(b.depth))
			return
		}
	case opCall, opRefFunc:
		b.index(i.op, b.shifted(i.a))
		return
	case opMemoryGrow, opMisc:
		if i.op == opMemoryGrow || bulk(i.sub) {
			b.index(opCall, b.bulkIndex(i))
			return
		}
	}
	b.bytes = appendInstruction(b.bytes, b.m.wasm, i)
}

// point charges where the plan says to.
func (b *bodyWriter) point(p point) {
	if !b.plan.pending(p) {
		b.charge(&b.code, p.cost)
		if p.kind == pointHeader {
			b.check(&b.code)
		}
		return
	}
	local := b.pendingLocal()
	b.index(opLocalGet, local)
	b.i64(int64(p.cost))
	b.emit(opI64Add)
	if p.kind != pointHeader {
		b.index(opLocalSet, local)
		return
	}
	b.index(opLocalTee, local)
	b.i64(pendingLimit)
	b.emit(opI64GtU, opIf, blockVoid)
	b.index(opLocalGet, local)
	b.index(opCall, b.settle)
	b.index(opLocalSet, local)
	b.emit(opEnd)
}
