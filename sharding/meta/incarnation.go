package meta

import (
	"math"
	"slices"
	"time"
)

// MaxIncarnationAhead is how far a start may be ahead of the clock of the node
// that is told of it. Incarnations are Unix milliseconds of starts, or one more
// than the last: without a bound one number that nobody could exceed would keep
// a node out for good.
const MaxIncarnationAhead = time.Hour

// LatestIncarnation is the highest that a node may have at a time, where known
// is the one that the metadata has of it, 0 for none: clocks that were set
// right keep no node out that has started by a wrong one.
func LatestIncarnation(now time.Time, known uint64) uint64 {
	latest := max(uint64(now.UnixMilli()), known)
	return latest + min(uint64(MaxIncarnationAhead.Milliseconds()), math.MaxUint64-latest)
}

// Coordinates says whether a command is one that the coordinator alone makes:
// on what becomes of members and replicas. It carries these out where it is.
func Coordinates(body []byte) bool {
	c, err := decode(body)
	return err == nil && slices.Contains([]string{opPlace, opSetStatus, opRemoveMember, opChange, opSetDraining}, c.Op)
}

// Admits returns the member that a command admits or puts, if it does.
func Admits(body []byte) (Member, bool) {
	c, err := decode(body)
	switch {
	case err != nil:
	case c.Member != nil:
		return *c.Member, true
	case c.Founder != nil:
		return *c.Founder, true
	}
	return Member{}, false
}
