//go:build !mutant_85

package engine

// lend lets work that is charged at a point go without a look.
func (p *planner) lend(at *point, work int) bool {
	if p.plan.credit+work > mostCredit {
		return false
	}
	p.plan.credit += work
	at.credit += work
	return true
}
