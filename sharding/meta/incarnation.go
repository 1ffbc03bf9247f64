package meta

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hostd/hostd/sharding"
)

// maxIncarnationAhead limits the time by which an incarnation may be ahead of
// the clock of the node that checks it. An incarnation is the time at which the
// process started, in Unix milliseconds, or one more than the last incarnation.
// Without a limit, a single huge incarnation, which no later incarnation could
// exceed, would lock a node out forever.
const maxIncarnationAhead = time.Hour

// LatestIncarnation returns the highest acceptable incarnation at time now.
// known is the node's incarnation in the metadata, 0 if none. The known
// incarnation is acceptable, so that correcting a clock that was ahead does not
// lock out nodes that started before the correction.
func LatestIncarnation(now time.Time, known uint64) uint64 {
	latest := max(uint64(now.UnixMilli()), known)
	return latest + min(uint64(maxIncarnationAhead.Milliseconds()), math.MaxUint64-latest)
}

// FutureStartError is returned for an incarnation that is later than
// LatestIncarnation according to another node's clock. One of the two clocks is
// wrong, but it is unknown which clock.
type FutureStartError struct {
	Node  sharding.NodeID // node that started
	By    sharding.NodeID // node whose clock was used
	Now   time.Time       // time on that clock
	Ahead time.Duration   // from Now to the start
}

func (e *FutureStartError) Error() string {
	return fmt.Sprintf("node %s started in the future, %v ahead of the clock of node %s, which shows %s: correct the wrong clock, and restart node %s if the wrong clock was its own",
		e.Node, e.Ahead.Round(time.Second), e.By, e.Now.UTC().Format(time.RFC3339), e.Node)
}

// CheckIncarnation returns a *FutureStartError if the incarnation of a node is
// later than LatestIncarnation at time now on node by.
func CheckIncarnation(node sharding.NodeID, incarnation uint64, by sharding.NodeID, now time.Time, known uint64) error {
	if incarnation <= LatestIncarnation(now, known) {
		return nil
	}
	// Cap the difference at the longest time.Duration.
	const most = math.MaxInt64 / uint64(time.Millisecond)
	ahead := incarnation - uint64(now.UnixMilli())
	return &FutureStartError{Node: node, By: by, Now: now, Ahead: time.Duration(min(ahead, most)) * time.Millisecond}
}

// IsCoordinatorCommand reports whether only the coordinator issues the command:
// a command that changes placements or the status of members. The coordinator
// proposes these commands on the node on which it runs.
func IsCoordinatorCommand(body []byte) bool {
	c, err := decode(body)
	return err == nil && slices.Contains([]string{opPlace, opSetStatus, opRemoveMember, opChange, opSetDraining}, c.Op)
}

// AdmittedMember returns the member that a command admits or stores, if there
// is one.
func AdmittedMember(body []byte) (Member, bool) {
	c, err := decode(body)
	switch {
	case err != nil:
	case c.Member != nil:
		return *c.Member, true
	case c.BootstrapNode != nil:
		return *c.BootstrapNode, true
	}
	return Member{}, false
}
