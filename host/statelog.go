package host

import (
	"fmt"
	"strings"

	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
)

// maxStateShards limits how many shards a line of LogState names.
const maxStateShards = 64

// LogState logs a summary of the node's state: readiness, shards and leaders,
// executors, queues and disk. It names at most 64 shards. It does not wait for
// executors or the Raft loop.
func (n *Node) LogState() {
	ready := "ready"
	if !n.joined.Load() {
		n.logger.Info("node state", "ready", n.checkOpen())
		return
	}
	if err := n.readiness(); err != nil {
		ready = err.Error()
	}
	var raft raftgroup.Stats
	if loop := n.replicas.raft.loop.Load(); loop != nil {
		raft = loop.Stats()
	}
	n.logger.Info("node state", "ready", ready, "peers", raft.Peers, "peers_suspected", raft.Suspected, "clock_skew", n.watches.clock.Skew(),
		"disk_free_bytes", n.watches.disk.Free(), "disk_read_only", n.watches.disk.ReadOnly(), "disk_stalled", n.watches.stalls.Disk())
	n.logShards()
	for i, s := range n.shardRouter.Stats() {
		n.logger.Info("executor state", "executor", i, "entities", s.Entities, "hibernated", s.Hibernated, "instances", s.Instances, "guest_bytes", s.GuestBytes,
			"commands", s.Commands, "queries", s.Queries, "faults", s.Faults, "timers_due", s.TimersDue)
	}
	sends, sendBytes := n.deliveries.count()
	n.logger.Info("queue state", "requests_waiting", n.shardRouter.Waiting(), "apply_backlog_bytes", n.replicas.applier.Backlog(), "store_unmerged_bytes", n.replicas.store.UnmergedBytes(),
		"outbox_sends", sends, "outbox_bytes", sendBytes, "raft_groups", raft.Groups, "raft_groups_awake", raft.Awake,
		"proposals_dropped", raft.ProposalsDropped, "snapshots_sending", raft.SendingSnapshots, "log_held_bytes", raft.HeldBytes)
}

// logShards logs which shards have a replica here, which of them the node
// leads, and which have no leader or no quorum.
func (n *Node) logShards() {
	here, placed := n.routing.leaders.Placement()
	var led, leaderless, halted []sharding.ShardID
	for _, id := range here {
		l := n.shardRouter.Lead(id)
		switch {
		case l.Leader == 0:
			leaderless = append(leaderless, id)
		case !l.Quorum:
			halted = append(halted, id)
		}
		if l.Serving {
			led = append(led, id)
		}
	}
	n.logger.Info("shard state", "placed", placed, "replicas", len(here), "led", len(led), "leads", shardList(led),
		"without_leader", shardList(leaderless), "without_quorum", shardList(halted), "disputed", n.replicas.consistency.Count())
}

// shardList formats at most maxStateShards shards.
func shardList(ids []sharding.ShardID) string {
	var named []string
	for i, id := range ids {
		if i == maxStateShards {
			named = append(named, fmt.Sprintf("and %d more", len(ids)-i))
			break
		}
		named = append(named, fmt.Sprint(id))
	}
	return strings.Join(named, " ")
}
