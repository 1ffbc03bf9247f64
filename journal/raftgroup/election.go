package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/election"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
)

// call makes the group stand for election soon, where it may.
func (g *group) call(elections *election.List, now uint64) {
	if g.stopped == sharding.NotStopped && (slices.Contains(g.conf.State.GetVoters(), g.replica) || slices.Contains(g.conf.State.GetVotersOutgoing(), g.replica)) {
		elections.Call(g, now)
	}
}

// Candidacy and the methods below implement election.Replica.
func (g *group) Candidacy() *election.Candidacy { return &g.candidacy }

// Led says that a leader is known.
func (g *group) Led() bool { return g.leader || g.node.BasicStatus().Lead != raft.None }

// Voted says that the term is another one than after the last turn.
func (g *group) Voted() bool { return g.node.BasicStatus().GetTerm() != g.term }

// Elects says that the replica waits for votes that raise the term.
func (g *group) Elects() bool { return g.node.BasicStatus().RaftState == raft.StateCandidate }

// Failed says that the group does nothing any more.
func (g *group) Failed() bool { return g.failed }

// HearsQuorum says whether most of the voters are heard.
func (g *group) HearsQuorum() bool { return g.quorum }

// Turn is the replica's place among the voters that are heard, which begins at
// another voter for each group.
func (g *group) Turn() uint64 {
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
