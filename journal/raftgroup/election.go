package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/election"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
)

// requestElection schedules a candidacy if the group may campaign.
func (g *group) requestElection(elections *election.List, now uint64) {
	if g.stopped == sharding.NotStopped && (slices.Contains(g.conf.State.GetVoters(), g.replica) || slices.Contains(g.conf.State.GetVotersOutgoing(), g.replica)) {
		elections.Schedule(g, now)
	}
}

// Candidacy and the methods below implement election.Replica.
func (g *group) Candidacy() *election.Candidacy { return &g.candidacy }

// HasLeader reports whether a leader is known.
func (g *group) HasLeader() bool { return g.leader || g.raw.BasicStatus().Lead != raft.None }

// HasNewTerm reports whether the term has changed since the last turn.
func (g *group) HasNewTerm() bool { return g.raw.BasicStatus().GetTerm() != g.term }

// IsCandidate reports whether the replica is a candidate that has raised the term.
func (g *group) IsCandidate() bool { return g.raw.BasicStatus().RaftState == raft.StateCandidate }

// HasFailed reports whether raft panicked in the group.
func (g *group) HasFailed() bool { return g.failed }

// HasQuorum reports whether a majority of the voters is alive.
func (g *group) HasQuorum() bool { return g.quorum }

// Rank returns the replica's rank among the alive voters. The first rank
// rotates with the shard id, so that the leaderships of many groups spread over
// the nodes.
func (g *group) Rank() uint64 {
	var heard []uint64
	for _, id := range g.conf.State.GetVoters() {
		if id == g.replica || g.routes.IsAlive(id) {
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

// campaignNow makes this node's replicas of leaderless groups campaign now
// instead of after the election timeout. Shards that have a leader, or no
// replica here, are skipped. It is used for groups that were created
// together, so that they get leaders at once and on the intended nodes. At
// other times it has the same effect as an election timeout.
func (c *Core) campaignNow(shards []sharding.ShardID) {
	for _, s := range shards {
		g := c.groups[s]
		if g == nil || c.awaitingRelease || c.opts.isHeld(g.shard) || g.lead != 0 || g.stopped != sharding.NotStopped {
			continue
		}
		c.campaign(g) // if raft rejects this, the replica must not campaign now
	}
}

// Campaign makes the replicas of leaderless groups campaign. It returns before
// the elections are decided.
func (l *Loop) Campaign(shards []sharding.ShardID) error {
	return l.call(func() error { l.core.campaignNow(shards); return nil })
}

// Release allows all groups to vote, campaign and respond, after
// Options.AwaitAttestation held them back. Until now, messages to these groups
// were dropped, which raft tolerates. If shards are given, only those groups of
// Options.HeldShards are released.
func (c *Core) Release(shards ...sharding.ShardID) {
	c.opts.release(shards...)
	for _, s := range shards {
		if g := c.groups[s]; g != nil {
			c.updateClock(g)
			c.markDirty(g)
		}
	}
	if !c.awaitingRelease || len(shards) > 0 {
		return
	}
	c.awaitingRelease = false
	for _, g := range c.order {
		c.markDirty(g)
	}
}

// Release calls Core.Release. It has no effect on a loop that is not awaiting
// attestation.
func (l *Loop) Release() error {
	return l.call(func() error { l.core.Release(); return nil })
}

// ReleaseShard releases a group that Options.HeldShards held back.
func (l *Loop) ReleaseShard(shard sharding.ShardID) error {
	return l.call(func() error { l.core.Release(shard); return nil })
}

// isHeld reports whether the shard's group must not vote, campaign or
// respond yet.
func (o *Options) isHeld(shard sharding.ShardID) bool { return slices.Contains(o.HeldShards, shard) }

func (o *Options) release(shards ...sharding.ShardID) {
	o.HeldShards = slices.DeleteFunc(slices.Clone(o.HeldShards), func(s sharding.ShardID) bool { return slices.Contains(shards, s) })
}
