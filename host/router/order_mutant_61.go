//go:build mutant_61

package router

import "github.com/hostd/hostd/host/entity"

// drained lets requests go out while others are out that may come back.
func drained(int) bool { return true }

func passed(ran, number uint64) bool { return ran > number }

func putBack(back []*entity.Request, q *entity.Request, answered bool) []*entity.Request {
	if answered {
		return back
	}
	return append(back, q)
}
