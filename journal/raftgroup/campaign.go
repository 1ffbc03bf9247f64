package raftgroup

import "github.com/hostd/hostd/sharding"

// Campaign lets the replicas on this node of groups without a known leader
// stand for election now instead of after the election timeout. Shards that
// are led, or not here, are passed over. It is how groups that were created
// together get their leaders at once and where they are wanted; at any time it
// does no more than an election timeout would.
func (c *Core) Campaign(shards []sharding.ShardID) {
	for _, s := range shards {
		g := c.groups[s]
		if g == nil || g.lead != 0 {
			continue
		}
		_ = g.node.Campaign() // refused: it may not stand now, and need not
		c.touch(g)
	}
}

// Campaign asks the replicas of groups without a known leader to stand for
// election. It returns before they have.
func (l *Loop) Campaign(shards []sharding.ShardID) error {
	return l.call(func() error { l.core.Campaign(shards); return nil })
}
