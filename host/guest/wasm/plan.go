package wasm

import (
	"math"
)

// A function's instructions are charged in stretches: at its entry, at the
// header of each loop, and where the paths of a large switch begin or meet
// again. A point of charge pays for the instructions from it to the next point
// in the file, those of loops inside excepted, which have points of their own.
//
// Within a stretch control only goes forward, so what a point charges is at
// least what runs. It may be more: both arms of an if are charged. A switch
// (a br_table of many labels) would make that a gross excess: the interpreter
// loop of a language has hundreds of cases, and the Go compiler turns a whole
// function into one switch inside one loop. So each case is a point, and so is
// every place that can be reached around one: the rule, kept by planner.end
// and planner.otherwise, is that no path reaches an instruction without passing
// the point before it.
type point struct {
	at   int // in the module: after the instruction that ends here
	cost uint32
	kind pointKind
	loop int // index of the loop it belongs to; -1 outside of all
	// copies, of a header, is how many turns of the loop are written in a row.
	copies int
	// late, of a header: what a turn costs is charged on the way back to the
	// header, and that of the first turn at the point around it, outer.
	late  bool
	outer int
	// called: something was called since control came by here. looks: the fuel is
	// looked at here, as it always is at a header. See behind.go.
	called, looks bool
	long          bool // begins a part of a long stretch
	work, credit  int  // bytes
}

// pointKind says where in a function a charge is made.
type pointKind uint8

const (
	pointEntry  pointKind = iota // of the function
	pointHeader                  // of a loop
	pointMiddle                  // in a large switch
)

// bodyPlan is how a function body is metered.
type bodyPlan struct {
	code   Stretch // without locals
	locals int     // declared ones
	points []point
	// calls is by loop: whether a call is inside it. What a loop without one
	// spends is kept in a local until it is worth settling.
	calls        []bool
	instructions int
	credit       int  // bytes: see behind.go
	deep         bool // its frame is counted: it calls others that are more than a few instructions
	indirect     bool // it calls by a table
	direct       []directCall
	byCallers    bool   // whoever calls it pays for points[0]
	owed         uint32 // for calls at points[0]
	region       region
	unrolled     int // bytes of instructions written again
}

// manyLabels is from how many labels on a br_table is a switch whose cases are
// charged one by one; smallBody is up to how many bytes a function is charged
// as a whole all the same.
const (
	manyLabels = 6
	smallBody  = 128
)

// frameKind says what opened a frame.
type frameKind uint8

const (
	frameBlock frameKind = iota
	frameLoop
	frameIf
)

// frame is an open block, loop or if.
type frame struct {
	kind     frameKind
	targeted bool // a branch goes to its end
	switched bool // a br_table of many labels goes to its end
	points   int  // middle points of its region when it began
	operands int  // that a branch to it takes along
	callers
	// Of a loop: the region around it, its point and its first instruction, and
	// whether something in it keeps it from being written several times.
	outerPoint, outerPoints, outerLoop, outerInner int
	header, body                                   int
	stiff                                          bool
	behind                                         bool // a call
	backs                                          int  // branches back to it
}

// planner plans one function body in one pass over it.
type planner struct {
	m       *Module
	plan    *bodyPlan
	where   *Cursor
	frames  []frame
	current int // point that instructions are charged to
	points  int // middle points of this region so far: a region is the function or a loop
	loop    int // innermost loop, or -1
	inner   int // its frame, or -1
	start   int // of the instruction
	large   bool
	params  int
	self    uint32 // the function's own index
	behind  bool   // something was called before
	early   int    // bytes: the work of what is in front of all calls
}

// maxPoints bounds the places of a module that are charged: loops, cases of
// switches, functions.
const maxPoints = 500_000

// modulePlanner plans a module's functions as they are read.
type modulePlanner struct {
	plans  []bodyPlan
	points int // of all plans
	planner
}

var _ Reader = (*modulePlanner)(nil)

// Begin implements reader.
func (r *modulePlanner) Begin(m *Module, c *Cursor, f Function) {
	r.planner = planner{m: m, plan: &bodyPlan{code: f.Code, locals: f.Locals}, where: c, loop: -1, inner: -1,
		large: c.Left() > smallBody, params: len(f.Signature.Params), frames: r.frames[:0], self: f.Index}
	r.plan.points = []point{{at: f.Code.Start, kind: pointEntry, loop: -1}}
	r.push(frame{kind: frameBlock, operands: len(f.Signature.Results)})
}

// Step implements reader.
func (r *modulePlanner) Step(i *Instruction, start int) {
	r.start = start
	r.step(i)
}

// End implements reader.
func (r *modulePlanner) End() {
	r.plans = append(r.plans, *r.plan)
	if r.points += len(r.plan.points); r.points > maxPoints {
		r.where.Refuse("more than %d functions, loops and cases of switches up to here; split the module", maxPoints)
	}
}

func (p *planner) push(f frame) {
	f.points, f.start, f.rigidTo = p.points, p.start, math.MaxInt
	p.frames = append(p.frames, f)
}

func (p *planner) step(i *Instruction) {
	p.plan.instructions++
	p.lookBehind(i)
	p.plan.points[p.current].cost += Weight(i) + carrying(p.carried(i))
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
		p.called()
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
		if i.Bulk() {
			p.called()
		}
	}
}

// carried is how many values the instruction takes along: to a function and
// back, to the target of a branch, or to where the arms of a block meet.
func (p *planner) carried(i *Instruction) int {
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

// called marks all loops that are open as having a call inside.
func (p *planner) called() {
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
	// Even an empty loop costs something.
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

// rigid notes a branch that cannot be written in another way, if something is
// to happen before it.
func (p *planner) rigid(label uint32) {
	to := len(p.frames) - 1 - int(label)
	f := &p.frames[len(p.frames)-1]
	f.rigidTo = min(f.rigidTo, to)
	p.frames[to].backs = math.MaxInt32
	if p.inner >= 0 && to < p.inner {
		p.frames[p.inner].stiff = true
	}
}

// results is how many values a block of the type leaves.
func (p *planner) results(blockType int64) int {
	switch {
	case blockType == BlockVoidType:
		return 0
	case blockType >= 0 && blockType < int64(len(p.m.Types)):
		return len(p.m.Types[blockType].Results)
	}
	return 1
}

// otherwise begins the second arm of an if. The last point of the first arm
// has not been passed on the way here.
func (p *planner) otherwise() {
	f := &p.frames[len(p.frames)-1]
	f.first = f.children
	if p.points != f.points {
		p.charge(p.where.Pos, pointMiddle)
	}
}

// end closes a frame. A path that comes to the end of a block from inside it
// may not have passed the last point in it, nor one that goes around an if.
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

// pending reports whether what a point charges is kept in the function's local
// for it: it is in a loop that calls nothing.
func (b *bodyPlan) pending(at point) bool { return at.loop >= 0 && !b.calls[at.loop] }

// hasPending reports whether the function has such a local.
func (b *bodyPlan) hasPending() bool {
	for _, calls := range b.calls {
		if !calls {
			return true
		}
	}
	return false
}

// reachedAround reports whether a path may come to the frame's end without
// passing the last middle point inside it; points is how many its region has
// by then.
func (f *frame) reachedAround(points int) bool {
	return points != f.points && (f.targeted || f.kind == frameIf)
}
