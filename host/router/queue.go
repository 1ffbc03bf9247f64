package router

import (
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/request"
)

// budget is a memory limit that all routes of a router share.
type budget struct {
	limit int64
	used  atomic.Int64
}

// queue holds requests in the order of their numbers.
type queue struct {
	items   []*request.Request // items[head:] are held
	head    int
	bytes   int
	total   *budget
	fresh   int       // number of items at the end that have no Route.Until yet
	soonest time.Time // lower bound of the due times of held requests; zero if none is known
}

// costBytes returns the memory that a held request is charged for: its payload,
// its ids and a fixed overhead.
func costBytes(q *request.Request) int {
	return 512 + len(q.Payload) + len(q.Entity.ID) + len(q.ID)
}

// maxHold is longer than any deadline.
const maxHold = 24 * time.Hour

// limitOf returns how long a request that certainly did not run waits for a
// leader: for patience, or for 3/4 of the time to its deadline if that is
// shorter. The caller then learns that nothing happened while it still listens.
func limitOf(q *request.Request, now time.Time, patience time.Duration) time.Time {
	if q.Route.Ordered {
		return now.Add(maxHold)
	}
	if !q.Deadline.IsZero() {
		patience = max(0, min(patience, q.Deadline.Sub(now)*3/4))
	}
	return now.Add(patience)
}

// due returns when a held request is given up; zero means never.
func due(q *request.Request) time.Time {
	if q.Route.Unknown {
		return q.Deadline
	}
	return sooner(q.Route.Until, q.Deadline)
}

func (h *queue) len() int { return len(h.items) - h.head }

// room reports whether q fits within the limits.
func (h *queue) room(l *limits, q *request.Request) bool {
	cost := costBytes(q)
	return h.len() < l.requests && h.bytes+cost <= l.bytes && h.total.used.Load()+int64(cost) <= h.total.limit
}

func (h *queue) account(bytes int) {
	h.bytes += bytes
	h.total.used.Add(int64(bytes))
}

func (h *queue) push(q *request.Request) {
	h.account(costBytes(q))
	h.soonest = sooner(h.soonest, due(q))
	h.items = append(h.items, q)
	h.fresh++
}

// limit sets how long the requests that were pushed since the last call wait
// for a leader.
func (h *queue) limit(now time.Time, patience time.Duration) {
	for _, q := range h.items[len(h.items)-h.fresh:] {
		if q.Route.Until.IsZero() {
			q.Route.Until = limitOf(q, now, patience)
		}
		h.soonest = sooner(h.soonest, due(q))
	}
	h.fresh = 0
}

func (h *queue) pop() *request.Request {
	q := h.items[h.head]
	h.items[h.head] = nil
	h.head++
	h.fresh = min(h.fresh, h.len())
	h.account(-costBytes(q))
	if h.head == len(h.items) {
		h.items, h.head, h.soonest = h.items[:0], 0, time.Time{}
		if cap(h.items) > 64 {
			h.items = nil
		}
	}
	return q
}

// prepend puts requests at the front. It ignores the limits, because the
// requests were admitted before.
func (h *queue) prepend(qs []*request.Request) {
	if len(qs) == 0 {
		return
	}
	for _, q := range qs {
		h.account(costBytes(q))
		h.soonest = sooner(h.soonest, due(q))
	}
	h.items = append(append(make([]*request.Request, 0, len(qs)+h.len()), qs...), h.items[h.head:]...)
	h.head = 0
}

// remove removes the requests for which the predicate which returns true.
func (h *queue) remove(which func(*request.Request) bool) {
	keep := h.items[:0]
	h.soonest = time.Time{}
	for _, q := range h.items[h.head:] {
		if which(q) {
			h.account(-costBytes(q))
			continue
		}
		h.soonest = sooner(h.soonest, due(q))
		keep = append(keep, q)
	}
	clear(h.items[len(keep):])
	h.items, h.head, h.fresh = keep, 0, 0
}
