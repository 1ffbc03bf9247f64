//go:build mutant_62

package router

import "github.com/hostd/hostd/host/entity"

func drained(out int) bool { return out == 0 }

func passed(ran, number uint64) bool { return ran > number }

// putBack keeps a request that is answered.
func putBack(back []*entity.Request, q *entity.Request, _ bool) []*entity.Request {
	return append(back, q)
}
