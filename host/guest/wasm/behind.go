package wasm

// What a function has paid for and does after a call it made came back, it does
// without a look at the fuel: a recursion would do all of that in one go on its
// way back out. So the work that stands behind a call is looked at there: it
// begins a stretch of its own, with a point that charges and looks, or the point
// that it is charged at looks too. A little of it may go without, on credit, and
// counts as a part of the function's frame: the stack bounds the sum.
//
// Work is what can take long for the units it costs: accesses to memory, and
// calls of others, which do not all look at the fuel. It is counted in bytes of
// the frame. Other instructions count there as frameInstruction.
const (
	workAccess = 256 // of memory, 100 ns or more when it waits
	workSelf   = 64  // a call of the function itself that returns before it calls anything, beside its accesses
	mostCredit = 768 // of a function; a call of another one is more
)

// longStretch is how many units may be charged at once before an access to
// memory or a call, so that a look at the fuel comes after some thousands of
// accesses however long a function is.
const longStretch = 16_000

// mostLooks is how many times a function looks in its own code. In a call it is
// slower, but what compiling takes grows with the square of the branches.
const mostLooks = 64

// work is that of an instruction, 0 of most.
func (p *planner) work(i *Instruction) int {
	switch {
	case i.AccessesMemory():
		return workAccess
	case i.Op == OpCall && i.A == p.self:
		return workSelf + p.early
	case i.Op == OpCallIndirect || i.Op == OpCall && int64(i.A) >= int64(len(p.m.Imports)):
		return mostCredit + 1
	}
	return 0
}

// lookBehind has the fuel looked at before the instruction where that is needed.
func (p *planner) lookBehind(i *Instruction) {
	work := p.work(i)
	if work == 0 {
		return
	}
	if !p.behind {
		p.early = min(p.early+work, mostCredit+1)
	}
	at := &p.plan.points[p.current]
	switch {
	case at.cost > longStretch:
		p.chargeBefore()
		p.plan.points[p.current].long = true
	case !p.behind:
	case !at.called && (at.looks || at.kind == pointHeader) || p.lend(at, work):
	case !at.called:
		at.looks = true
		p.plan.credit -= at.credit
		at.credit = 0
	default:
		p.chargeBefore()
	}
	p.plan.points[p.current].work += work
}

// chargeBefore begins a point that looks, before the instruction.
func (p *planner) chargeBefore() {
	p.charge(p.start, pointMiddle)
	p.plan.points[p.current].looks = true
}

// lookBehind charges and looks.
func (b *bodyWriter) lookBehind(cost uint32) {
	if b.looked++; b.looked > mostLooks {
		b.i64(int64(cost))
		b.index(OpCall, b.settle)
		b.emit(OpDrop)
		return
	}
	b.charge(&b.code, cost)
	b.check(&b.code)
}

// lend lets work that is charged at a point go without a look.
func (p *planner) lend(at *point, work int) bool {
	if p.plan.credit+work > mostCredit {
		return false
	}
	p.plan.credit += work
	at.credit += work
	return true
}
