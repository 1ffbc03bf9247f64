package cluster

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// raft manages the node's replicas.
type raft interface {
	CreateGroups([]raftgroup.GroupConfig) error
	RemoveGroups([]raftgroup.ReplicaRef) error
	ChangeMembers(shard sharding.ShardID, fence sharding.Term, change raftgroup.Change) error
	TransferLeader(shard sharding.ShardID, to sharding.ReplicaID) error
	Campaign(shards []sharding.ShardID) error
	Statuses() ([]raftgroup.Status, error)
}

// maxCreated and maxRemoved bound the replicas that one pass creates or
// removes, so that the raft loop can do other work in between.
const (
	maxCreated = 512
	maxRemoved = 32
)

// reconcile brings this node's replicas to the state that the metadata
// describes, and the membership of the groups that this node leads to their
// placements. statuses are this node's groups by shard. It returns whether
// nothing had to be changed.
//
// The view must be at least as new as any that this node has ever acted on.
// An older view may contain a replica of this node that has been removed
// since then. If that replica were created again, it would have forgotten
// its votes and the entries it acknowledged. Therefore the node catches up
// with the metadata once after it has started, and a view never goes back
// afterwards. A view from a time when the node had a different disk is
// ignored.
func (m *Member) reconcile(view *meta.View, statuses []raftgroup.Status) (settled bool) {
	self, admitted := view.Member(m.opts.Node)
	if !admitted || self.Disk != m.opts.Disk {
		return false
	}
	have := make(map[sharding.ShardID]sharding.ReplicaID, len(statuses))
	for i := range statuses {
		have[statuses[i].Shard] = statuses[i].Replica
	}
	created, err := m.createPlaced(view, have)
	if err != nil {
		m.opts.Logger.Error("cannot create replicas", "error", err)
	}
	removed, err := m.removeForgotten(view, have)
	if err != nil {
		m.opts.Logger.Error("cannot remove replicas", "error", err)
	}
	settled = created+removed == 0
	for i := range statuses {
		if st := &statuses[i]; st.Self {
			settled = m.converge(view, st) && settled
		}
	}
	return settled
}

// createPlaced creates the replicas that are placed here but missing. It
// returns their number, including failed attempts.
func (m *Member) createPlaced(view *meta.View, have map[sharding.ShardID]sharding.ReplicaID) (int, error) {
	var create []raftgroup.GroupConfig
	var stand []sharding.ShardID
	for _, h := range view.HostedBy(m.opts.Node) {
		if _, there := have[h.Shard]; there || h.Replica.State == meta.ReplicaLeaving || len(create) == maxCreated {
			continue
		}
		create = append(create, raftgroup.GroupConfig{Shard: h.Shard, Replica: h.Replica.ID, Voters: h.First})
		if h.First[0] == h.Replica.ID {
			stand = append(stand, h.Shard)
		}
	}
	if len(create) == 0 {
		return 0, nil
	}
	if err := m.opts.Raft.CreateGroups(create); err != nil {
		return len(create), fmt.Errorf("create %d replicas: %w", len(create), err)
	}
	m.opts.Logger.Info("created replicas", "count", len(create))
	if len(stand) > 0 {
		m.tasks.Go(func() { m.campaign(stand) })
	}
	return len(create), nil
}

// campaignAfter gives the other nodes time to create their replicas.
const campaignAfter = 150 * time.Millisecond

// campaign makes this node's replicas of new groups campaign if they are the first
// in their placement. That spreads leaderships as replicas are spread, without
// waiting for an election timeout.
func (m *Member) campaign(shards []sharding.ShardID) {
	wait := time.NewTimer(campaignAfter)
	defer wait.Stop()
	select {
	case <-wait.C:
		if err := m.opts.Raft.Campaign(shards); err != nil {
			m.opts.Logger.Debug("cannot start elections in new groups", "error", err)
		}
	case <-m.stopped.Done():
	}
}

// removeForgotten removes the replicas that are not in any placement. The
// coordinator forgets a replica only after its group has removed it.
// removeForgotten returns the number of removed replicas, including failed
// attempts.
func (m *Member) removeForgotten(view *meta.View, have map[sharding.ShardID]sharding.ReplicaID) (int, error) {
	var remove []raftgroup.ReplicaRef
	for shard, replica := range have {
		if _, placed := view.ReplicaNode(shard, replica); !placed && len(remove) < maxRemoved {
			remove = append(remove, raftgroup.ReplicaRef{Shard: shard, Replica: replica})
		}
	}
	if len(remove) == 0 {
		return 0, nil
	}
	if err := m.opts.Raft.RemoveGroups(remove); err != nil {
		return len(remove), fmt.Errorf("remove %d replicas: %w", len(remove), err)
	}
	m.opts.Logger.Info("removed replicas", "count", len(remove))
	return len(remove), nil
}

// matchesPlacement reports whether a group's members equal its placement.
func matchesPlacement(p meta.Placement, st *raftgroup.Status) bool {
	if len(st.Outgoing) > 0 || len(st.Voters)+len(st.Learners) != len(p.Replicas) {
		return false
	}
	for _, r := range p.Replicas {
		if r.State == meta.ReplicaVoter && !slices.Contains(st.Voters, r.ID) || r.State == meta.ReplicaLearner && !slices.Contains(st.Learners, r.ID) ||
			r.State == meta.ReplicaLeaving {
			return false
		}
	}
	return true
}

// converge moves the membership of a group that this node leads one step
// towards the group's placement, and reports whether no step is left.
func (m *Member) converge(view *meta.View, st *raftgroup.Status) (settled bool) {
	p, placed := view.Placement(st.Shard)
	if !placed {
		return true
	}
	if matchesPlacement(p, st) {
		return true
	}
	change, needed := coordinator.Converge(p, m.confOf(view, st))
	if !needed {
		return false
	}
	var err error
	if change.Transfer != 0 {
		err = m.opts.Raft.TransferLeader(st.Shard, change.Transfer)
	} else {
		err = m.opts.Raft.ChangeMembers(st.Shard, st.Term, raftgroup.Change{
			AddLearners: change.AddLearners, AddVoters: change.AddVoters, Remove: change.Remove,
		})
	}
	// The leadership may have just moved, or another change may be in progress.
	// The next pass sees the result.
	if err != nil && !errors.Is(err, raftgroup.ErrNotLeader) && !errors.Is(err, raftgroup.ErrFenced) && !errors.Is(err, raftgroup.ErrDropped) {
		m.opts.Logger.Warn("cannot change the membership of a shard", "shard_id", uint32(st.Shard), "error", err)
	}
	return false
}

// confOf returns the membership of a group that this node leads, for Converge.
func (m *Member) confOf(view *meta.View, st *raftgroup.Status) coordinator.Conf {
	conf := coordinator.Conf{
		Self: st.Replica, Voters: st.Voters, Learners: st.Learners, Outgoing: st.Outgoing,
		Match: st.Match, Commit: st.Commit, Next: view.NextReplica(), Unreachable: slices.Clone(st.Inactive),
	}
	for _, id := range slices.Concat(st.Voters, st.Learners) {
		if node, known := view.ReplicaNode(st.Shard, id); !known || !m.isAlive(node) {
			conf.Unreachable = append(conf.Unreachable, id)
		}
	}
	return conf
}
