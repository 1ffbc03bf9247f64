package wasm

// region is the part of a function during which its frame is counted. It
// extends from the first to the last call, as deep inside blocks as possible
// while one place contains all calls, but outside of loops. So a call that
// returns before it reaches the region, as half the calls of a recursion do,
// pays only for its instructions.
//
// The region is left at its end, by br and return, and by a br_if that can be
// rewritten as an if, which requires a label without operands. If a function
// leaves it in any other way, its frame is counted from its first to its last
// instruction.
type region struct{ start, end int }

func (r region) exists() bool { return r.end > 0 }

// callers describes the calls inside a frame.
type callers struct {
	start    int    // offset of the block's own instruction
	children int    // number of instructions and blocks, one level down, that contain a call
	first    int    // number of children before an else
	region   region // from the first child with a call to the last one
	inner    region // region inside the child, if there is only one
	rigidTo  int    // outermost frame targeted by a branch that cannot be rewritten
}

func (f *callers) note(start, end int, inner region) {
	if f.children++; f.children == 1 {
		f.region.start = start
	}
	f.region.end, f.inner = end, inner
}

// place returns the region of the frame with this number, or the zero region if
// the frame has no suitable place for one.
func (f *frame) place(number int) region {
	split := f.first > 0 && f.children > f.first // both arms of an if contain a call
	switch {
	case f.kind == frameLoop || split || f.rigidTo <= number:
		return region{}
	case f.children == 1 && f.inner.exists():
		return f.inner
	}
	return f.region
}

// closeRegion passes the description of the calls in a closed frame to the
// enclosing frame, or to the plan.
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

// enterRegion begins the region of the function.
func (b *bodyWriter) enterRegion() {
	if b.plan.byCallers && b.plan.owed > 0 {
		b.charge(&b.code, b.plan.owed)
	}
	b.takeFrame()
	b.inRegion, b.within = true, len(b.open)
}

// takeFrame subtracts the function's frame from the stack counter and checks
// stack and fuel together. The old counter is saved in a local and restored
// at the end. Adding the frame back instead would make each call wait for the
// store of the previous call.
func (b *bodyWriter) takeFrame() {
	b.index(OpGlobalGet, b.fuel)
	b.index(OpGlobalGet, b.stack)
	b.index(OpLocalTee, b.stackLocal())
	b.i64(b.plan.frameBytes(b.params))
	b.emit(OpI64Sub)
	b.index(OpGlobalSet, b.stack)
	b.index(OpGlobalGet, b.stack)
	b.emit(OpI64Or) // the result is negative if either counter is
	b.refuelIfNegative(&b.code)
}

func (b *bodyWriter) giveFrame() {
	b.index(OpLocalGet, b.stackLocal())
	b.index(OpGlobalSet, b.stack)
}
