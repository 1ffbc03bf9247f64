package meta

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hostd/hostd/sharding"
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

// FutureStartError says that a start of a node is later than LatestIncarnation
// by the clock of another node. One of the two clocks is wrong; which one, no
// node can know from this alone.
type FutureStartError struct {
	Node  sharding.NodeID // whose start it is
	By    sharding.NodeID // whose clock it is compared with
	Now   time.Time       // what that clock says
	Ahead time.Duration   // from Now to the start
}

func (e *FutureStartError) Error() string {
	return fmt.Sprintf("node %s has started in the future, %v ahead of the clock of node %s, which says %s: set the clock that is wrong, and start node %s again if it was its own",
		e.Node, e.Ahead.Round(time.Second), e.By, e.Now.UTC().Format(time.RFC3339), e.Node)
}

// CheckIncarnation returns a *FutureStartError if a start of a node is later
// than LatestIncarnation at the time now of the node by.
func CheckIncarnation(node sharding.NodeID, incarnation uint64, by sharding.NodeID, now time.Time, known uint64) error {
	if incarnation <= LatestIncarnation(now, known) {
		return nil
	}
	// Milliseconds that no duration holds are more than anybody reads.
	const most = math.MaxInt64 / uint64(time.Millisecond)
	ahead := incarnation - uint64(now.UnixMilli())
	return &FutureStartError{Node: node, By: by, Now: now, Ahead: time.Duration(min(ahead, most)) * time.Millisecond}
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
