package wasm

import (
	"math"
)

// A point is a place where fuel is charged.
//
// A function's instructions are charged in stretches: at its entry, at each
// loop header, and where the paths of a large switch begin or join. A point
// pays for the instructions from it to the next point in the file, without
// those of inner loops, which have their own points.
//
// Within a stretch, control only moves forward, so a point charges at least
// what runs. It may charge more: both arms of an if are charged. For a switch
// (a br_table with many labels) the excess would be huge: the interpreter loop
// of a language has hundreds of cases, and the Go compiler turns a whole
// function into one switch inside one loop. So each case is a point, and so is
// every place that can be reached around a case. The invariant, kept by
// planner.end and planner.otherwise, is that no path reaches an instruction
// without passing the point before it.
type point struct {
	at   int // offset in the module, after the instruction that ends at the point
	cost uint32
	kind pointKind
	loop int // index of the loop that contains the point, or -1
	// copies, for a header, is how many iterations of the loop are written in a
	// row.
	copies int
	// late, for a header, means that each further iteration is charged at the
	// branch back to the header. The first iteration is charged at the enclosing
	// point, outer.
	late  bool
	outer int
	// called: a function was called since control passed this point. looks: the
	// fuel is checked here, as it always is at a header. See behind.go.
	called, looks bool
	long          bool // the point begins a part of a long stretch
	work, credit  int  // in bytes, see behind.go
}

// pointKind is the place of a point in a function.
type pointKind uint8

const (
	pointEntry  pointKind = iota // entry of the function
	pointHeader                  // header of a loop
	pointMiddle                  // place in a large switch
)

// bodyPlan describes how a function body is metered.
type bodyPlan struct {
	code   Stretch // the body without its locals
	locals int     // number of declared locals
	points []point
	// calls[i] reports whether loop i contains a call. A loop without calls
	// accumulates its fuel in a local until it is worth settling.
	calls        []bool
	instructions int
	credit       int  // in bytes, see behind.go
	deep         bool // the frame is counted, because the function calls functions of more than a few instructions
	indirect     bool // the function contains call_indirect
	direct       []directCall
	byCallers    bool   // the callers pay for points[0]
	owed         uint32 // cost of the calls charged at points[0]
	region       region
	unrolled     int // bytes of instructions added by unrolling
}

// manyLabels is the number of labels from which a br_table counts as a switch
// with individually charged cases. smallBody is the size in bytes up to which a
// function is charged as a whole anyway.
const (
	manyLabels = 6
	smallBody  = 128
)

// frameKind is the instruction that opened a frame.
type frameKind uint8

const (
	frameBlock frameKind = iota
	frameLoop
	frameIf
)

// frame is an open block, loop or if.
type frame struct {
	kind     frameKind
	targeted bool // a branch targets its end
	switched bool // a br_table with many labels targets its end
	points   int  // middle points of its region when it began
	operands int  // number of operands that a branch to it carries
	callers
	// For a loop: the enclosing point, points, loop and inner frame; the index of
	// its header point and the offset of its first instruction; and whether
	// something in it prevents unrolling.
	outerPoint, outerPoints, outerLoop, outerInner int
	header, body                                   int
	stiff                                          bool
	behind                                         bool // a call precedes the loop
	backs                                          int  // number of branches back to the loop
}

// planner plans one function body in one pass.
type planner struct {
	m       *Module
	plan    *bodyPlan
	where   *Cursor
	frames  []frame
	current int // point that instructions are currently charged to
	points  int // middle points of the current region so far; a region here is the function or a loop
	loop    int // index of the innermost loop, or -1
	inner   int // frame of the innermost loop, or -1
	start   int // offset of the current instruction
	large   bool
	params  int
	self    uint32 // the function's own index
	behind  bool   // a call precedes the current instruction
	early   int    // work that precedes all calls, in bytes
}

// maxPoints bounds the points of a module: functions, loops and cases of
// switches.
const maxPoints = 500_000

// modulePlanner plans a module's functions while they are read.
type modulePlanner struct {
	plans  []bodyPlan
	points int // number of points of all plans
	planner
}

var _ Reader = (*modulePlanner)(nil)

// Begin implements Reader.
func (r *modulePlanner) Begin(m *Module, c *Cursor, f Function) {
	r.planner = planner{m: m, plan: &bodyPlan{code: f.Code, locals: f.Locals}, where: c, loop: -1, inner: -1,
		large: c.Remaining() > smallBody, params: len(f.Signature.Params), frames: r.frames[:0], self: f.Index}
	r.plan.points = []point{{at: f.Code.Start, kind: pointEntry, loop: -1}}
	r.push(frame{kind: frameBlock, operands: len(f.Signature.Results)})
}

// Step implements Reader.
func (r *modulePlanner) Step(i *Instruction, start int) {
	r.start = start
	r.step(i)
}

// End implements Reader.
func (r *modulePlanner) End() {
	r.plans = append(r.plans, *r.plan)
	if r.points += len(r.plan.points); r.points > maxPoints {
		r.where.Refuse("more than %d functions, loops and switch cases up to here; split the module", maxPoints)
	}
}

func (p *planner) push(f frame) {
	f.points, f.start, f.rigidTo = p.points, p.start, math.MaxInt
	p.frames = append(p.frames, f)
}

func (p *planner) step(i *Instruction) {
	p.plan.instructions++
	p.lookBehind(i)
	p.plan.points[p.current].cost += Weight(i) + carrying(p.carriedValues(i))
	switch i.Op {
	case OpBlock:
		p.push(frame{kind: frameBlock, operands: p.results(i.Value)})
	case OpIf:
		p.push(frame{kind: frameIf, operands: p.results(i.Value)})
	case OpLoop:
		p.beginLoop(i.Value)
	case OpElse:
		p.otherwise()
	case OpEnd:
		p.end()
	case OpBr:
		p.target(i.A, false)
	case OpBrIf:
		if p.target(i.A, false).operands > 0 {
			p.rigid(i.A)
		}
	case OpBrTable:
		targets := p.m.Part(i.Targets)
		for range i.Count {
			label := targets.U32("a label")
			p.target(label, i.Count >= manyLabels)
			p.rigid(label)
		}
	case OpCall, OpCallIndirect:
		p.markCalled()
		if i.Op == OpCallIndirect || int64(i.A) >= int64(len(p.m.Imports)) {
			p.plan.points[p.current].called, p.behind = true, true
			if i.Op == OpCallIndirect {
				p.plan.indirect = true
			} else {
				p.plan.direct = append(p.plan.direct, directCall{p.current, i.A})
			}
			p.frames[len(p.frames)-1].note(p.start, p.where.Pos, region{})
		} else {
			p.plan.points[p.current].cost += weightHost
		}
	case OpMemoryGrow, OpMisc:
		if i.bulk() {
			p.markCalled()
		}
	}
}

// carriedValues returns the number of values that the instruction carries: to a
// function and back, to the target of a branch, or to the end of a block.
func (p *planner) carriedValues(i *Instruction) int {
	switch i.Op {
	case OpCall:
		s, _ := p.m.FunctionType(i.A)
		return values(s)
	case OpCallIndirect:
		return values(p.m.Types[i.A])
	case OpBr, OpBrIf, OpBrTable:
		return p.frames[len(p.frames)-1-int(i.A)].operands
	case OpElse, OpEnd:
		return p.frames[len(p.frames)-1].operands
	case OpLoop:
		if i.Value >= 0 {
			return len(p.m.Types[i.Value].Params)
		}
	}
	return 0
}

func values(s Signature) int { return len(s.Params) + len(s.Results) }

// markCalled marks all open loops as containing a call.
func (p *planner) markCalled() {
	loop := p.loop
	for f := len(p.frames) - 1; f >= 0 && loop >= 0 && !p.plan.calls[loop]; f-- {
		if p.frames[f].kind == frameLoop {
			p.plan.calls[loop] = true
			loop = p.frames[f].outerLoop
		}
	}
}

func (p *planner) beginLoop(blockType int64) {
	if p.inner >= 0 {
		p.frames[p.inner].stiff = true
	}
	f := frame{kind: frameLoop, outerPoint: p.current, outerPoints: p.points, outerLoop: p.loop, outerInner: p.inner, body: p.where.Pos, behind: p.behind}
	if blockType >= 0 && blockType < int64(len(p.m.Types)) {
		f.operands = len(p.m.Types[blockType].Params)
	}
	f.stiff = f.operands > 0
	p.inner = len(p.frames)
	p.push(f)
	p.points = 0
	p.frames[len(p.frames)-1].points = 0
	p.loop = len(p.plan.calls)
	p.plan.calls = append(p.plan.calls, false)
	p.charge(p.where.Pos, pointHeader)
	p.frames[p.inner].header = p.current
	p.plan.points[p.current].outer = f.outerPoint
	// Even an empty loop has a cost, so that no loop is free.
	p.plan.points[p.current].cost = LoopWeight
}

// charge begins a point.
func (p *planner) charge(at int, kind pointKind) {
	p.plan.points = append(p.plan.points, point{at: at, kind: kind, loop: p.loop})
	p.current = len(p.plan.points) - 1
	if kind == pointMiddle {
		if p.points++; p.inner >= 0 {
			p.frames[p.inner].stiff = true
		}
	}
}

func (p *planner) target(label uint32, switched bool) *frame {
	f := &p.frames[len(p.frames)-1-int(label)]
	f.targeted = true
	f.backs++
	f.switched = f.switched || switched && p.large && f.kind != frameLoop
	return f
}

// rigid records a branch that cannot be rewritten to do work before it is
// taken.
func (p *planner) rigid(label uint32) {
	to := len(p.frames) - 1 - int(label)
	f := &p.frames[len(p.frames)-1]
	f.rigidTo = min(f.rigidTo, to)
	p.frames[to].backs = math.MaxInt32
	if p.inner >= 0 && to < p.inner {
		p.frames[p.inner].stiff = true
	}
}

// results returns the number of results of a block type.
func (p *planner) results(blockType int64) int {
	switch {
	case blockType == BlockVoidType:
		return 0
	case blockType >= 0 && blockType < int64(len(p.m.Types)):
		return len(p.m.Types[blockType].Results)
	}
	return 1
}

// otherwise begins the else arm of an if. This arm does not pass the last point
// of the first arm.
func (p *planner) otherwise() {
	f := &p.frames[len(p.frames)-1]
	f.first = f.children
	if p.points != f.points {
		p.charge(p.where.Pos, pointMiddle)
	}
}

// end closes a frame. A path that branches to the end of a block, or around an
// if, may not have passed the last point inside it, so a new point may be
// needed.
func (p *planner) end() {
	f := p.frames[len(p.frames)-1]
	p.frames = p.frames[:len(p.frames)-1]
	p.closeRegion(&f)
	if f.kind == frameLoop {
		p.unroll(&f)
		p.chargeLate(&f)
		if p.plan.calls[p.loop] {
			p.plan.points[f.outerPoint].called = true
		}
		p.current, p.points, p.loop, p.inner = f.outerPoint, f.outerPoints, f.outerLoop, f.outerInner
		return
	}
	if len(p.frames) > 0 && (f.switched || f.reachedAround(p.points)) {
		p.charge(p.where.Pos, pointMiddle)
	}
}

// pending reports whether the cost of a point accumulates in the local for
// pending fuel, because the point is in a loop without calls.
func (b *bodyPlan) pending(at point) bool { return at.loop >= 0 && !b.calls[at.loop] }

// hasPending reports whether the function needs a local for pending fuel.
func (b *bodyPlan) hasPending() bool {
	for _, calls := range b.calls {
		if !calls {
			return true
		}
	}
	return false
}

// reachedAround reports whether a path may reach the frame's end without
// passing the last middle point inside it. points is the number of middle
// points of its region so far.
func (f *frame) reachedAround(points int) bool {
	return points != f.points && (f.targeted || f.kind == frameIf)
}
