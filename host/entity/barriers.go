package entity

import (
	"slices"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// commitBarriers are the commit barriers of a shard. They hold the outcome of
// a request until everything that the request has seen is committed and, for
// reads, until a ReadIndex round has confirmed that this node still leads.
//
//	await --> gate decided, round confirmed --> answered
//	     \-> round failed                   --> answered: not the leader
//	      \-> its proposal is lost          --> decided again
//
// A query must see a state at least as new as the moment when it arrived, so it
// waits for a ReadIndex round that is requested after its arrival. If the
// entity is not in memory, the round runs while the entity is loaded: it shows
// that this node led the shard after the query arrived, and the state that the
// query sees later can only be newer. A request notes the lowest number that
// this round can have, because an executor numbers rounds over all its shards.
type commitBarriers struct {
	awaiting    []*request.Request // requests with a known outcome
	needsRound  bool               // some outcomes need a ReadIndex round that was not requested yet
	confirmed   uint64             // highest confirmed round
	failedRound uint64             // highest round that could not be confirmed
}

// isFree reports whether the outcome can be answered. All proposals with
// numbers up to decided are applied or lost, so the proposals that the outcome
// depends on must be among them. If it needs a ReadIndex round, that round must
// be confirmed.
func (g *commitBarriers) isFree(r *request.Request, decided uint64) bool {
	return r.Exec.Barrier <= decided && !r.Exec.NeedsRound && r.Exec.Round <= g.confirmed
}

// await holds an outcome unless it can be answered at once. reads reports that
// the outcome needs a ReadIndex round requested from now on.
func (g *commitBarriers) await(r *request.Request, barrier uint64, reads bool, decided uint64) (free bool) {
	r.Exec.Barrier, r.Exec.NeedsRound = barrier, reads && !g.hasReadRound(r)
	if g.isFree(r, decided) {
		return true
	}
	g.awaiting = append(g.awaiting, r)
	g.needsRound = g.needsRound || r.Exec.NeedsRound
	return false
}

// RequestReadRound requests a ReadIndex round for a query that waits for its
// entity, and reports whether the query needed a new round. next is the
// number of the next round.
func (g *commitBarriers) RequestReadRound(r *request.Request, next uint64) bool {
	if r.Kind != request.Query || r.Exec.Round != 0 {
		return false
	}
	r.Exec.Round, g.needsRound = next, true
	return true
}

// hasReadRound reports whether the request's round is confirmed or in
// progress. If the round failed, the request needs another round.
func (g *commitBarriers) hasReadRound(r *request.Request) bool {
	return r.Exec.Round != 0 && (r.Exec.Round <= g.confirmed || r.Exec.Round > g.failedRound)
}

// NeedsRound reports whether an outcome needs a ReadIndex round that was not
// requested yet.
func (g *commitBarriers) NeedsRound() bool { return g.needsRound }

// Confirm notes a confirmed ReadIndex round and reports whether it is higher
// than all previous rounds.
func (g *commitBarriers) Confirm(round uint64) bool {
	if round <= g.confirmed {
		return false
	}
	g.confirmed = round
	return true
}

// Fail removes the outcomes that wait for a failed ReadIndex round, and calls
// to(r) for the request r of each.
func (g *commitBarriers) Fail(round uint64, to func(*request.Request)) {
	g.failedRound = max(g.failedRound, round)
	g.take(func(r *request.Request) bool { return g.confirmed < r.Exec.Round && r.Exec.Round <= round }, to)
}

// AssignRound gives the number of the requested round to every outcome that
// needs one.
func (g *commitBarriers) AssignRound(round uint64) {
	g.needsRound = false
	for _, r := range g.awaiting {
		if r.Exec.NeedsRound {
			r.Exec.NeedsRound, r.Exec.Round = false, round
		}
	}
}

// take removes the outcomes for which picked returns true, and calls to(r)
// for the request r of each.
func (g *commitBarriers) take(picked func(*request.Request) bool, to func(*request.Request)) {
	keep := g.awaiting[:0]
	for _, r := range g.awaiting {
		if picked(r) {
			to(r)
		} else {
			keep = append(keep, r)
		}
	}
	clear(g.awaiting[len(keep):])
	g.awaiting = keep
}

// takeLost removes and returns the outcomes that may have seen the lost
// proposal with this number. saw has the entities of that proposal. An
// outcome of such an entity may have seen the proposal if it waits for that
// proposal or for a later one.
func (g *commitBarriers) takeLost(number uint64, saw map[sharding.EntityID]struct{}) (freed []*request.Request) {
	g.awaiting = slices.DeleteFunc(g.awaiting, func(r *request.Request) bool {
		_, it := saw[r.Entity]
		if it = it && r.Exec.Barrier >= number; it {
			freed = append(freed, r)
		}
		return it
	})
	return freed
}

// close removes and returns all outcomes when the leadership ends. Requested
// ReadIndex rounds stay valid.
func (g *commitBarriers) close() (awaiting []*request.Request) {
	awaiting, g.awaiting, g.needsRound = g.awaiting, nil, false
	return awaiting
}
