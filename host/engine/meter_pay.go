//go:build !mutant_84

package engine

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
