package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
)

// A replica that knows its leader is gone does not wait for raft's election
// timeout: it asks for votes soon. The voters that are heard take turns, in an
// order that differs from group to group, so that one of them is alone and the
// leaderships spread; each asks a few times before it leaves the matter
// to the election timeout. Votes are asked for as raft does, before the term is
// raised, so a replica that is wrong about its leader disturbs nobody.
const (
	attempts = 4
	// otherTurn lies between two voters' turns and retryAfter between the
	// attempts of one, in ticks. The others learn of the silence a little earlier
	// or later, and until then they refuse.
	otherTurn  = 2
	retryAfter = 3
)

// candidacy is a replica's without a leader, which is to stand at a tick.
type candidacy struct {
	standing bool
	at       uint64
	stood    int // how often
}

// asked follows a request for a vote: who stands too lets the other one have its
// time, unless that cannot win because entries are missing to it.
func (k *candidacy) asked(now uint64, ahead bool) {
	switch {
	case !k.standing:
	case ahead:
		k.at = min(k.at, now+1)
	default:
		k.at = max(k.at, now+retryAfter)
	}
}

// elections are the groups whose replica here is a candidate.
type elections struct{ groups []*group }

// call makes the group stand for election soon.
func (e *elections) call(g *group, now uint64) {
	if g.stopped != sharding.NotStopped {
		return
	}
	if !slices.Contains(g.conf.State.GetVoters(), g.replica) && !slices.Contains(g.conf.State.GetVotersOutgoing(), g.replica) {
		return
	}
	k := &g.candidacy
	k.stood, k.at = 0, now+1+otherTurn*g.turn()
	if !k.standing {
		k.standing = true
		e.groups = append(e.groups, g)
	}
}

// remove forgets a group.
func (e *elections) remove(g *group) {
	e.groups = slices.DeleteFunc(e.groups, func(o *group) bool { return o == g })
}

// due lets those groups stand whose turn has come, at most so many that their
// messages and votes fit into a tick.
func (e *elections) due(now uint64, most int, stand func(*group)) {
	kept := e.groups[:0]
	for _, g := range e.groups {
		k := &g.candidacy
		if !k.standing {
			continue // it has stopped
		}
		if k.at > now || most == 0 && !g.led() {
			kept = append(kept, g)
			continue
		}
		if g.led() {
			k.standing = false
			continue
		}
		if g.node.BasicStatus().GetTerm() != g.term {
			// It has just voted, and stands again if that leads to nothing.
			k.at = now + retryAfter
			kept = append(kept, g)
			continue
		}
		most--
		stand(g)
		if g.failed {
			continue
		}
		k.stood++
		k.at = now + retryAfter + uint64(k.stood) + g.turn()
		if k.stood >= attempts || !g.quorum {
			k.standing = false
			continue
		}
		kept = append(kept, g)
	}
	clear(e.groups[len(kept):])
	e.groups = kept
}

// turn is the replica's place among the voters that are heard, which begins at
// another voter for each group.
func (g *group) turn() uint64 {
	var heard []uint64
	for _, id := range g.conf.State.GetVoters() {
		if id == g.replica || g.routes.Heard(id) {
			heard = append(heard, id)
		}
	}
	i := slices.Index(heard, g.replica)
	if i < 0 {
		return uint64(len(heard))
	}
	n := uint64(len(heard))
	return (uint64(i) + n - uint64(g.shard)%n) % n
}

// led says that a leader is known: there is nothing to stand for.
func (g *group) led() bool {
	return g.leader || g.node.BasicStatus().Lead != raft.None
}

// Campaign lets the replicas on this node of groups without a known leader
// stand for election now instead of after the election timeout. Shards that
// are led, or not here, are passed over. It is how groups that were created
// together get their leaders at once and where they are wanted; at any time it
// does no more than an election timeout would.
func (c *Core) Campaign(shards []sharding.ShardID) {
	for _, s := range shards {
		g := c.groups[s]
		if g == nil || c.probation || c.opts.holdsBack(g.shard) || g.lead != 0 || g.stopped != sharding.NotStopped {
			continue
		}
		c.campaign(g) // where it is refused, it may not stand now, and need not
	}
}

// Campaign asks the replicas of groups without a known leader to stand for
// election. It returns before they have.
func (l *Loop) Campaign(shards []sharding.ShardID) error {
	return l.call(func() error { l.core.Campaign(shards); return nil })
}

// Release lets groups vote, campaign and answer that Options.Probation held back.
// Messages that came before were dropped, as a network may. With shards it lets
// their groups do so, which Options.Withheld held back, and no others.
func (c *Core) Release(shards ...sharding.ShardID) {
	c.opts.release(shards...)
	for _, s := range shards {
		if g := c.groups[s]; g != nil {
			c.settle(g)
			c.touch(g)
		}
	}
	if !c.probation || len(shards) > 0 {
		return
	}
	c.probation = false
	for _, g := range c.order {
		c.touch(g)
	}
}

// Release is Core.Release. It does nothing to a loop that is not on probation.
func (l *Loop) Release() error {
	return l.call(func() error { l.core.Release(); return nil })
}

// ReleaseShard lets a group work that Options.Withheld held back.
func (l *Loop) ReleaseShard(shard sharding.ShardID) error {
	return l.call(func() error { l.core.Release(shard); return nil })
}

// holdsBack says that the group of the shard neither votes, campaigns nor
// answers yet.
func (o *Options) holdsBack(shard sharding.ShardID) bool { return slices.Contains(o.Withheld, shard) }

func (o *Options) release(shards ...sharding.ShardID) {
	o.Withheld = slices.DeleteFunc(slices.Clone(o.Withheld), func(s sharding.ShardID) bool { return slices.Contains(shards, s) })
}
