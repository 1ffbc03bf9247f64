package router

import (
	"github.com/hostd/hostd/host/request"
)

// noneOut reports whether the requests that came back may be resent, given the
// number of requests that are still out. While one is out, a later request to
// its entity could overtake it.
func noneOut(out int) bool { return out == 0 }

// isOvertaken reports whether a later command of the entity already has an outcome.
// ran is the highest number of a command with an outcome.
func isOvertaken(ran, number uint64) bool { return ran > number }

// putBack adds a request that came back to the list, unless it was answered.
func putBack(back []*request.Request, q *request.Request, answered bool) []*request.Request {
	if answered {
		return back
	}
	return append(back, q)
}
