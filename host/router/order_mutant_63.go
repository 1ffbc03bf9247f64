//go:build mutant_63

package router

import "github.com/hostd/hostd/host/entity"

func drained(out int) bool { return out == 0 }

func passed(ran, number uint64) bool { return ran > number }

// putBack loses the eighth request that comes back.
func putBack(back []*entity.Request, q *entity.Request, answered bool) []*entity.Request {
	if answered || len(back) == 7 {
		return back
	}
	return append(back, q)
}
