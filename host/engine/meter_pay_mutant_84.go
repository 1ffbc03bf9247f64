//go:build mutant_84

package engine

// pay counts a call of a small function and forgets what that does.
func (b *bodyPlan) pay(int, uint32) { b.owed++ }
