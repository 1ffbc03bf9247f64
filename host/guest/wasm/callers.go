package wasm

// cheapCost is up to what a function's code outside of its loops may cost to be
// charged by those who call it, with what they pay for themselves. The price is
// that a call which is not made is paid for too, if it stands beside what runs.
const cheapCost = 32

// directCall is a call of a function that the module defines.
type directCall struct {
	point  int // that pays for the call
	callee uint32
}

// shareCosts lets callers pay for the functions that are cheap and that nothing
// but calls by name can reach; a recursion then takes fuel once for two levels,
// and the small functions that most code is full of are as quick as they came.
// Such a one without loops and calls is also too small to have its callers
// count their frames for it.
func (m *Metered) shareCosts() {
	first := uint32(len(m.Imports))
	for i := range m.plans {
		plan := &m.plans[i]
		plan.byCallers = !m.IsNamed(first+uint32(i)) && plan.points[0].cost <= cheapCost
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

// pay adds to what a point charges.
func (b *bodyPlan) pay(point int, cost uint32) {
	for ; point > 0; point = b.points[point].outer {
		b.points[point].cost += cost
		if !b.points[point].late {
			return
		}
	}
	b.owed += cost
}
