package entity

import (
	"slices"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// gates keep the outcomes of a shard's requests until everything that they saw
// is committed and, where they read, until a read round has confirmed that this
// node still leads.
//
//	await --> gate decided, round confirmed --> answered
//	     \-> round failed                   --> answered: not the leader
//	      \-> its proposal is lost          --> decided again
//
// A query must see a state that is as new as the moment it arrived, so it waits
// for a read round that is asked after that. One on an entity that is not in
// memory has its round asked while the entity is loaded: the round shows that
// this node led the shard after the query had come, and what the query sees
// afterwards can only be newer. It says the number that the next round has at
// least, for rounds are counted over all shards of an executor.
type gates struct {
	awaiting  []*request.Request // outcomes known
	asks      bool               // some need a read round that is not asked for
	confirmed uint64             // highest confirmed read round
	unread    uint64             // highest read round that could not be confirmed
}

// free reports that nothing keeps an outcome where every proposal up to decided
// is applied or lost.
func (g *gates) free(r *request.Request, decided uint64) bool {
	return r.Lane.Gate <= decided && !r.Lane.Asks && r.Lane.Round <= g.confirmed
}

// await takes an outcome in, unless it is free at once. reads says that it
// needs a read round asked from now on.
func (g *gates) await(r *request.Request, gate uint64, reads bool, decided uint64) (free bool) {
	r.Lane.Gate, r.Lane.Asks = gate, reads && !g.askedReadRound(r)
	if g.free(r, decided) {
		return true
	}
	g.awaiting = append(g.awaiting, r)
	g.asks = g.asks || r.Lane.Asks
	return false
}

// AskReadRound asks for the read round of a request that waits for its entity,
// where it needs one; next is the number of the next round.
func (g *gates) AskReadRound(r *request.Request, next uint64) bool {
	if r.Kind != request.Query || r.Lane.Round != 0 {
		return false
	}
	r.Lane.Round, g.asks = next, true
	return true
}

// askedReadRound reports whether a round of the request is confirmed or under
// way. One that failed meanwhile is asked for again.
func (g *gates) askedReadRound(r *request.Request) bool {
	return r.Lane.Round != 0 && (r.Lane.Round <= g.confirmed || r.Lane.Round > g.unread)
}

// Asks reports that some outcome needs a read round that is not asked for.
func (g *gates) Asks() bool { return g.asks }

// Confirm notes that a read round is confirmed. It reports that it says more
// than those before.
func (g *gates) Confirm(round uint64) bool {
	if round <= g.confirmed {
		return false
	}
	g.confirmed = round
	return true
}

// Fail hands over the outcomes that wait for a read round which could not be
// confirmed.
func (g *gates) Fail(round uint64, to func(*request.Request)) {
	g.unread = max(g.unread, round)
	g.take(func(r *request.Request) bool { return g.confirmed < r.Lane.Round && r.Lane.Round <= round }, to)
}

// Asked notes that a round is asked for everything that came since the last.
func (g *gates) Asked(round uint64) {
	g.asks = false
	for _, r := range g.awaiting {
		if r.Lane.Asks {
			r.Lane.Asks, r.Lane.Round = false, round
		}
	}
}

// take takes out what is picked, and hands it over.
func (g *gates) take(picked func(*request.Request) bool, to func(*request.Request)) {
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

// lost takes out what may have seen a proposal that is lost: what waits for it
// or for a later one, of the entities of its commands.
func (g *gates) lost(number uint64, saw map[sharding.EntityID]struct{}) (freed []*request.Request) {
	g.awaiting = slices.DeleteFunc(g.awaiting, func(r *request.Request) bool {
		_, it := saw[r.Entity]
		if it = it && r.Lane.Gate >= number; it {
			freed = append(freed, r)
		}
		return it
	})
	return freed
}

// close takes everything out, when the shard is lost. Rounds that were asked
// for stay known.
func (g *gates) close() (awaiting []*request.Request) {
	awaiting, g.awaiting, g.asks = g.awaiting, nil, false
	return awaiting
}
