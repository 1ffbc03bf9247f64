package router

import (
	"github.com/hostd/hostd/host/request"
)

// drained reports whether, with so many requests out, what came back may go
// out again: with one still out, a later one of its entity could pass it.
func drained(out int) bool { return out == 0 }

// passed reports whether a later command has its outcome already.
func passed(ran, number uint64) bool { return ran > number }

// putBack keeps a request that came back, unless it is answered.
func putBack(back []*request.Request, q *request.Request, answered bool) []*request.Request {
	if answered {
		return back
	}
	return append(back, q)
}
