package wasm

// region is the part of a function for which its frame is counted: from the
// first to the last of what calls, as deep inside blocks as one place holds
// them all, but around loops. A call that returns before it gets there, as half
// the calls of a recursion do, pays for its instructions and no more.
//
// It is left at its end, by br and return, and by a br_if that can be written
// as an if: one to a label without operands. A function where that does not do
// counts its frame from its first instruction to its last.
type region struct{ start, end int }

func (r region) exists() bool { return r.end > 0 }

// callers is what a frame knows of the calls inside it.
type callers struct {
	start    int    // the block's own instruction
	children int    // instructions and blocks, one level down, that call
	first    int    // of them before an else
	region   region // from the first of them to the last
	inner    region // that of an only child
	rigidTo  int    // the outermost frame that a branch goes to which has to stay as it is
}

func (f *callers) note(start, end int, inner region) {
	if f.children++; f.children == 1 {
		f.region.start = start
	}
	f.region.end, f.inner = end, inner
}

// place is the region in the frame with this number, none when there is no
// place for one.
func (f *frame) place(number int) region {
	split := f.first > 0 && f.children > f.first // both arms of an if call
	switch {
	case f.kind == frameLoop || split || f.rigidTo <= number:
		return region{}
	case f.children == 1 && f.inner.exists():
		return f.inner
	}
	return f.region
}

// closeRegion hands what is known of the calls in a frame that ends to the one
// around it, or to the plan.
func (p *planner) closeRegion(f *frame) {
	number := len(p.frames)
	if number == 0 {
		p.plan.region = f.place(0)
		return
	}
	around := &p.frames[number-1]
	if f.children > 0 {
		around.note(f.start, p.where.Pos, f.place(number))
	}
	around.rigidTo = min(around.rigidTo, f.rigidTo)
}

// enterRegion begins the part of the function that its frame is counted for.
func (b *bodyWriter) enterRegion() {
	if b.plan.byCallers && b.plan.owed > 0 {
		b.charge(&b.code, b.plan.owed)
	}
	b.takeFrame()
	b.inRegion, b.within = true, len(b.open)
}

// takeFrame counts the function's frame and looks at the fuel. What was left of
// the stack is kept to be put back: adding the frame again would have each call
// wait for what the call before it stored.
func (b *bodyWriter) takeFrame() {
	b.index(OpGlobalGet, b.fuel)
	b.index(OpGlobalGet, b.stack)
	b.index(OpLocalTee, b.stackLocal())
	b.i64(b.plan.frameBytes(b.params))
	b.emit(OpI64Sub)
	b.index(OpGlobalSet, b.stack)
	b.index(OpGlobalGet, b.stack)
	b.emit(OpI64Or) // negative if either is
	b.refuelIfNegative(&b.code)
}

func (b *bodyWriter) giveFrame() {
	b.index(OpLocalGet, b.stackLocal())
	b.index(OpGlobalSet, b.stack)
}
