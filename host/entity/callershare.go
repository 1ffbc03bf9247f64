package entity

import (
	"time"

	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
)

// callerShares counts the unanswered requests of a shard by caller, so that one
// caller cannot use all of Options.ShardInFlight. Callers are hashed to the
// places of a fairQueue, and those with the same hash share a place. If the shard
// has had requests of only one place for sharedFor, that place may use all of
// the room. Otherwise each place gets at most half.
type callerShares struct {
	salt    uint64
	who     *principal.Principal // caller of the last request, to hash each caller once
	place   uint8                // the place of who
	known   bool                 // place is valid
	main    uint8                // place whose requests are compared with those of others
	mainAt  int64                // time of the last request of main, unix nanoseconds
	otherAt int64                // time of the last request of another place
	total   int
	counts  [callers + 1]int
}

// sharedFor is how long after a request of another caller a shard keeps room for
// others.
const sharedFor = 10 * time.Second

// allows reports whether the caller's place may have another of at most most
// unanswered requests.
func (c *callerShares) allows(who *principal.Principal, most int, now int64) bool {
	p := c.placeOf(who)
	switch {
	case p == c.main:
		c.mainAt = now
	case now-c.mainAt > int64(sharedFor):
		c.main, c.mainAt = p, now
	default:
		c.otherAt = now
	}
	return now-c.otherAt > int64(sharedFor) || c.counts[p] < max(1, most/2)
}

// add counts an admitted request.
func (c *callerShares) add(r *request.Request) {
	p := c.placeOf(r.Principal)
	r.Exec.CallerPlace = p + 1
	c.counts[p]++
	c.total++
}

// release stops counting a request if it was counted.
func (c *callerShares) release(r *request.Request) {
	if p := r.Exec.CallerPlace; p > 0 {
		r.Exec.CallerPlace = 0
		c.counts[p-1]--
		c.total--
	}
}

func (c *callerShares) placeOf(who *principal.Principal) uint8 {
	if !c.known || c.who != who {
		c.known, c.who, c.place = true, who, uint8(placeOf(c.salt, who))
	}
	return c.place
}
