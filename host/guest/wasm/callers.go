package wasm

// cheapCost is the maximum cost, outside of loops, of a function that its
// callers pay for together with their own instructions. The drawback is that
// the callers also pay for a conditional call that they do not make.
const cheapCost = 32

// directCall is a call of a function that the module defines.
type directCall struct {
	point  int // the point that pays for the call
	callee uint32
}

// shareCosts lets callers pay for cheap functions that can only be reached by
// direct calls. A recursion then charges fuel once for two levels, and the
// small functions that most code is full of keep their original speed. Calls of
// such a function also do not require the caller to count its stack frame, if
// the function has no loops and no calls.
func (m *Metered) shareCosts() {
	first := uint32(len(m.Imports))
	for i := range m.plans {
		plan := &m.plans[i]
		plan.byCallers = !m.isNamed(first+uint32(i)) && plan.points[0].cost <= cheapCost
	}
	leaf := func(p *bodyPlan) bool {
		return p.byCallers && !p.indirect && len(p.direct) == 0 && len(p.calls) == 0
	}
	for i := range m.plans {
		plan := &m.plans[i]
		deep := plan.indirect
		for _, call := range plan.direct {
			callee := &m.plans[call.callee-first]
			deep = deep || !leaf(callee)
			if callee.byCallers {
				plan.pay(call.point, callee.points[0].cost)
			}
		}
		plan.deep = deep
	}
}

// pay adds cost to the cost of a point. If the point is a late loop header, it
// charges only later iterations, so the cost is also added to the enclosing
// point for the first iteration. This continues outwards up to a point that is
// not late.
func (b *bodyPlan) pay(point int, cost uint32) {
	for ; point > 0; point = b.points[point].outer {
		b.points[point].cost += cost
		if !b.points[point].late {
			return
		}
	}
	b.owed += cost
}
