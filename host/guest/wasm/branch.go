package wasm

// mostBacks is the maximum number of branches back to a loop's header if the
// loop is charged at these branches.
const mostBacks = 2

// chargeLate decides, at the end of a loop that contains calls, whether the
// loop is charged at the branches back to its header. That halves the cost of
// a loop with one or two iterations. The first iteration then runs without a
// fuel check.
func (p *planner) chargeLate(f *frame) {
	header := &p.plan.points[f.header]
	if p.plan.calls[header.loop] && f.backs <= mostBacks && (!f.behind || p.lend(header, header.work)) {
		header.late = true
		p.plan.points[header.outer].cost += header.cost
	}
}

// branch writes a br or br_if, preceded by the work of leaving blocks.
func (b *bodyWriter) branch(i *Instruction) {
	target := len(b.open) - 1 - int(i.A)
	label := b.label(i.A)
	late := b.open[target].late
	if late == 0 && !b.leaves(target) {
		b.index(i.Op, label)
		return
	}
	before := func() {
		if late > 0 {
			b.charge(&b.code, b.plan.points[late].cost)
			b.check(&b.code)
		}
		b.leaving(target)
	}
	if i.Op == OpBr {
		before()
		b.index(OpBr, label)
		return
	}
	b.emit(OpIf, BlockVoid)
	before()
	b.index(OpBr, label+1)
	b.emit(OpEnd)
}

// leaves reports whether a branch to open[target] must do work before it leaves
// blocks.
func (b *bodyWriter) leaves(target int) bool {
	return b.inRegion && target < b.within || b.refund > 0 && target < b.refundBelow
}

// leaving writes the work that leaves reports: it refunds fuel and restores the
// stack counter.
func (b *bodyWriter) leaving(target int) {
	if b.refund > 0 && target < b.refundBelow {
		b.giveBack()
	}
	if b.inRegion && target < b.within {
		b.giveFrame()
	}
}
