package engine

import (
	"fmt"
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
	// looked at here, as it always is at a header. See meter_behind.go.
	called, looks bool
	long          bool // begins a part of a long stretch
	work, credit  int  // bytes
}

type pointKind uint8

const (
	pointEntry  pointKind = iota // of the function
	pointHeader                  // of a loop
	pointMiddle                  // in a large switch
)

// bodyPlan is how a function body is metered.
type bodyPlan struct {
	code   stretch // without locals
	locals int     // declared ones
	points []point
	// calls is by loop: whether a call is inside it. What a loop without one
	// spends is kept in a local until it is worth settling.
	calls        []bool
	instructions int
	credit       int  // bytes: see meter_behind.go
	deep         bool // its frame is counted: it calls others that are more than a few instructions
	indirect     bool // it calls by a table
	direct       []directCall
	byCallers    bool   // whoever calls it pays for points[0]
	owed         uint32 // for calls at points[0]
	region       region
	unrolled     int // bytes of instructions written again
	nesting      int
}

// manyLabels is from how many labels on a br_table is a switch whose cases are
// charged one by one; smallBody is up to how many bytes a function is charged
// as a whole all the same.
const (
	manyLabels = 6
	smallBody  = 128
)

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
	m       *parsedModule
	plan    *bodyPlan
	where   *cursor
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

// planBody decodes the instructions in c, which are all of a function's, and
// says where to charge for them. It checks every index that rewriting gives a
// new meaning to, so that what is not valid does not become so.
func (m *parsedModule) planBody(c *cursor, params, results, locals int) bodyPlan {
	p := &planner{m: m, plan: &bodyPlan{code: stretch{c.pos, c.end}, locals: locals}, where: c, loop: -1, inner: -1,
		large: c.left() > smallBody, params: params, frames: m.frames[:0], self: uint32(len(m.imports) + len(m.bodies))}
	p.plan.points = []point{{at: c.pos, kind: pointEntry, loop: -1}}
	p.push(frame{kind: frameBlock, operands: results})
	var i instruction
	for c.ok() && len(p.frames) > 0 {
		p.start = c.pos
		c.next(&i)
		if c.ok() {
			p.step(&i)
		}
	}
	if c.ok() && c.left() > 0 {
		c.damaged("instructions behind the end")
	}
	m.frames = p.frames
	return *p.plan
}

func (p *planner) push(f frame) {
	f.points, f.start, f.rigidTo = p.points, p.start, math.MaxInt
	p.frames = append(p.frames, f)
	p.plan.nesting = max(p.plan.nesting, len(p.frames))
	if len(p.frames) > maxNesting {
		p.where.refuse("blocks nest deeper than %d; split the function", maxNesting)
	}
}

func (p *planner) step(i *instruction) {
	p.plan.instructions++
	p.check(i)
	p.lookBehind(i)
	p.plan.points[p.current].cost += weight(i)
	switch i.op {
	case opBlock:
		p.push(frame{kind: frameBlock, operands: p.results(i.value)})
	case opIf:
		p.push(frame{kind: frameIf, operands: p.results(i.value)})
	case opLoop:
		p.beginLoop(i.value)
	case opElse:
		p.otherwise()
	case opEnd:
		p.end()
	case opBr:
		p.target(i.a, false)
	case opBrIf:
		if f := p.target(i.a, false); f != nil && f.operands > 0 {
			p.rigid(i.a)
		}
	case opBrTable:
		targets := &cursor{data: p.where.data, pos: i.targets.start, end: i.targets.end}
		for range i.count {
			label := targets.u32("a label")
			if p.target(label, i.count >= manyLabels) != nil {
				p.rigid(label)
			}
		}
	case opCall, opCallIndirect:
		p.called()
		if i.op == opCallIndirect || int64(i.a) >= int64(len(p.m.imports)) {
			p.plan.points[p.current].called, p.behind = true, true
			if i.op == opCallIndirect {
				p.plan.indirect = true
			} else {
				p.plan.direct = append(p.plan.direct, directCall{p.current, i.a})
			}
			p.frames[len(p.frames)-1].note(p.start, p.where.pos, region{})
		} else {
			p.plan.points[p.current].cost += weightHost
		}
	case opRefFunc:
		p.m.nameFunction(i.a)
	case opTableSet:
		p.m.opaque = true
	case opMemoryGrow, opMisc:
		if i.op == opMemoryGrow || bulk(i.sub) {
			p.called()
			p.useBulk(i)
		}
		p.m.opaque = p.m.opaque || i.op == opMisc && i.sub >= miscTableInit && i.sub != miscTableSize
	}
}

// check refuses an index that names nothing in the module as it came.
func (p *planner) check(i *instruction) {
	m := p.m
	bound := -1
	what := ""
	switch op := i.op; {
	case op == opBlock || op == opLoop || op == opIf:
		if i.value >= 0 && i.value >= int64(len(m.types)) || i.value < 0 && i.value != blockVoidType && valueTypeName(byte(i.value&0x7f)) == "" {
			p.where.damaged("no such type of a block")
		}
		return
	case op == opCall || op == opRefFunc:
		bound, what = m.spaceSize(kindFunction), "function"
	case op == opCallIndirect:
		bound, what = len(m.types), "type"
	case op >= opLocalGet && op <= opLocalTee:
		bound, what = p.params+p.plan.locals, "local"
	case op == opGlobalGet || op == opGlobalSet:
		bound, what = m.globals, "global"
	default:
		return
	}
	if int64(i.a) >= int64(bound) {
		p.where.damaged(fmt.Sprintf("no %s %d", what, i.a))
	}
}

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
	f := frame{kind: frameLoop, outerPoint: p.current, outerPoints: p.points, outerLoop: p.loop, outerInner: p.inner, body: p.where.pos, behind: p.behind}
	if blockType >= 0 && blockType < int64(len(p.m.types)) {
		f.operands = len(p.m.types[blockType].params)
	}
	f.stiff = f.operands > 0
	p.inner = len(p.frames)
	p.push(f)
	p.points = 0
	p.frames[len(p.frames)-1].points = 0
	p.loop = len(p.plan.calls)
	p.plan.calls = append(p.plan.calls, false)
	p.charge(p.where.pos, pointHeader)
	p.frames[p.inner].header = p.current
	p.plan.points[p.current].outer = f.outerPoint
	// Even an empty loop costs something.
	p.plan.points[p.current].cost = loopWeight
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
	if int64(label) >= int64(len(p.frames)) {
		p.where.damaged(fmt.Sprintf("no block %d to branch to", label))
		return nil
	}
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
	case blockType == blockVoidType:
		return 0
	case blockType >= 0 && blockType < int64(len(p.m.types)):
		return len(p.m.types[blockType].results)
	}
	return 1
}

// otherwise begins the second arm of an if. The last point of the first arm
// has not been passed on the way here.
func (p *planner) otherwise() {
	f := &p.frames[len(p.frames)-1]
	if f.kind != frameIf {
		p.where.damaged("an else without an if")
		return
	}
	f.first = f.children
	if p.points != f.points {
		p.charge(p.where.pos, pointMiddle)
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
		p.charge(p.where.pos, pointMiddle)
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
