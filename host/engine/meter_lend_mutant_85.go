//go:build mutant_85

package engine

// lend lets all work go without a look.
func (p *planner) lend(*point, int) bool { return true }
