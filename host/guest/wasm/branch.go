package wasm

// mostBacks is how many branches back to its header a loop may have to be
// charged at them.
const mostBacks = 2

// chargeLate decides on a loop that has ended and has calls inside. Charged on
// the way back, a loop of a turn or two costs half as much. Its first turn comes
// without a look at the fuel then.
func (p *planner) chargeLate(f *frame) {
	header := &p.plan.points[f.header]
	if p.plan.calls[header.loop] && f.backs <= mostBacks && (!f.behind || p.lend(header, header.work)) {
		header.late = true
		p.plan.points[header.outer].cost += header.cost
	}
}

// branch writes a br or br_if, and before it what there is to do on its way.
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

// leaves reports whether there is something to do on the way to one of open.
func (b *bodyWriter) leaves(target int) bool {
	return b.inRegion && target < b.within || b.refund > 0 && target < b.refundBelow
}

// leaving does it.
func (b *bodyWriter) leaving(target int) {
	if b.refund > 0 && target < b.refundBelow {
		b.giveBack()
	}
	if b.inRegion && target < b.within {
		b.giveFrame()
	}
}
