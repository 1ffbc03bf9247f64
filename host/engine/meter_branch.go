package engine

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
func (b *bodyWriter) branch(i *instruction) {
	target := len(b.open) - 1 - int(i.a)
	label := b.label(i.a)
	late := b.open[target].late
	if late == 0 && !b.leaves(target) {
		b.index(i.op, label)
		return
	}
	before := func() {
		if late > 0 {
			b.charge(&b.code, lateCost(b.plan.points[late]))
			b.check(&b.code)
		}
		b.leaving(target)
	}
	if i.op == opBr {
		before()
		b.index(opBr, label)
		return
	}
	b.emit(opIf, blockVoid)
	before()
	b.index(opBr, label+1)
	b.emit(opEnd)
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
