//go:build !mutant_82

package engine

// giveBack takes off what was charged for turns that are not made.
func (b *bodyWriter) giveBack() {
	if b.refund > 0 {
		b.addPending(-b.refund)
	}
}
