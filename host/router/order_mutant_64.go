//go:build mutant_64

package router

import "github.com/hostd/hostd/host/entity"

func drained(out int) bool { return out == 0 }

// passed sends a command again although a later one has its outcome.
func passed(uint64, uint64) bool { return false }

func putBack(back []*entity.Request, q *entity.Request, answered bool) []*entity.Request {
	if answered {
		return back
	}
	return append(back, q)
}
