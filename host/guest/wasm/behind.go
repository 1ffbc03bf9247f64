package wasm

// Fuel checks after calls.
//
// A point of charge pays for all instructions up to the next point and normally
// checks the fuel only at loop headers. That is not enough in a recursion. The
// instructions after a call were already charged before the call, so a deep
// recursion would execute all of them in one go, unchecked, while it returns.
//
// Therefore work that follows a call is checked. Either such work gets a
// point of its own that charges and checks, or the existing point at which it
// is charged checks too. A little work (mostCredit) may go unchecked, on
// credit: the credit is added to the size of the function's frame, so that
// the stack limit bounds the sum of all credits.
//
// Work means instructions that can be slow compared with their units of fuel:
// memory accesses, and calls of other functions, not all of which check the
// fuel. It is measured in bytes of the frame. Every other instruction adds
// frameInstruction bytes to the frame.
const (
	workAccess = 256 // a memory access, which takes 100 ns or more when it misses the cache
	workSelf   = 64  // a call of the function itself that returns before it calls anything, not counting its memory accesses
	mostCredit = 768 // credit of one function; a call of a different function always exceeds it
)

// longStretch is how many units may be charged at once before a memory access
// or a call. It makes sure that a long function checks its fuel every few
// thousand accesses.
const longStretch = 16_000

// mostLooks is how many checks a function makes inline. After that it calls the
// settle function, which is slower to run but adds no branches. The time to
// compile a function grows with the square of its branches.
const mostLooks = 64

// work returns the work of an instruction in bytes, which is 0 for most of
// them.
func (p *planner) work(i *Instruction) int {
	switch {
	case i.accessesMemory():
		return workAccess
	case i.Op == OpCall && i.A == p.self:
		return workSelf + p.early
	case i.Op == OpCallIndirect || i.Op == OpCall && int64(i.A) >= int64(len(p.m.Imports)):
		return mostCredit + 1
	}
	return 0
}

// lookBehind plans a fuel check before the instruction if one is needed.
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

// chargeBefore begins a point that checks, before the instruction.
func (p *planner) chargeBefore() {
	p.charge(p.start, pointMiddle)
	p.plan.points[p.current].looks = true
}

// lookBehind writes the code that charges cost and checks the fuel.
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

// lend adds work charged at a point to the function's credit. It returns false
// if the credit would become too large.
func (p *planner) lend(at *point, work int) bool {
	if p.plan.credit+work > mostCredit {
		return false
	}
	p.plan.credit += work
	at.credit += work
	return true
}
