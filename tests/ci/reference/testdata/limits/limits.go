// Package limits declares limits in all the ways in which packages declare
// them.
package limits

import "time"

const (
	kilo = 1 << 10
	most = 4 * kilo
)

type options struct {
	Patience     time.Duration
	Queue, twice int
}

func def(field *int, value int) { *field = value }

func (o *options) fill() {
	def(&o.Queue, 1024)
	def(&o.twice, 1)
	*o = options{Patience: 2 * time.Minute, twice: 2 * most}
}
