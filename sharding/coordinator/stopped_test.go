package coordinator_test

import (
	"fmt"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// stopOn stops the host's replica of a shard, and returns it.
func (w *world) stopOn(s sharding.ShardID, node sharding.NodeID, why sharding.StopReason) *replica {
	r := w.groups[s].on(w.host(node))
	r.stopped = why
	return r
}

// A damaged replica is replaced without operator action, on another node if
// possible and otherwise on its own node under a new id. The other replicas
// lead meanwhile.
func TestDamagedReplicaIsReplaced(t *testing.T) {
	for _, hosts := range []int{3, 4} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			w := calmWorld(t, hosts, hosts)
			w.until(t, "whole", w.whole)
			before, _ := w.state.View().Placement(1)
			at := w.leaderOf(1)
			old := w.stopOn(1, at, sharding.StopDamaged)
			w.until(t, "another leader", func() bool { l := w.leaderOf(1); return l != "" && l != at })
			w.until(t, "replaced", func() bool {
				p, _ := w.state.View().Placement(1)
				_, still := p.Replica(old.id)
				return !still && len(p.IDs(meta.ReplicaVoter)) == 3 && w.whole()
			})
			after, _ := w.state.View().Placement(1)
			if r, on := after.ReplicaOn(at); on != (hosts == 3) || on && r.ID == old.id {
				t.Errorf("%d hosts: %+v became %+v", hosts, before.Replicas, after.Replicas)
			}
		})
	}
}

// A replica that cannot read its log stays if no other node can replace it: it
// votes, and a new replica on the same node would stop too. The replica is not
// given leadership.
func TestReplicaWithUnreadableLogStays(t *testing.T) {
	w := calmWorld(t, 3, 3)
	w.until(t, "whole", w.whole)
	at := w.leaderOf(1)
	old := w.stopOn(1, at, sharding.StopUnsupported)
	w.until(t, "another leader", func() bool { l := w.leaderOf(1); return l != "" && l != at })
	for range 200 {
		w.tick()
		if w.fault != "" {
			t.Fatal(w.fault)
		}
		if w.leaderOf(1) == at {
			t.Fatal("a replica that has stopped leads")
		}
	}
	if p, _ := w.state.View().Placement(1); len(p.IDs(meta.ReplicaVoter)) != 3 {
		t.Errorf("the placement has become %+v", p.Replicas)
	} else if r, ok := p.Replica(old.id); !ok || r.State != meta.ReplicaVoter {
		t.Errorf("the replica that votes has become %+v", r)
	}
	w.addHost()
	w.until(t, "replaced by the host that came", func() bool {
		p, _ := w.state.View().Placement(1)
		_, still := p.Replica(old.id)
		return !still && len(p.IDs(meta.ReplicaVoter)) == 3
	})
}

// A metadata replica that cannot read its log loses its vote to a learner, and
// stays.
func TestStoppedMetadataReplicaLosesItsVote(t *testing.T) {
	w := calmWorld(t, 4, 4)
	w.until(t, "whole", w.whole)
	g := w.groups[sharding.MetaShard]
	at := g.lead().node.id
	old := w.stopOn(sharding.MetaShard, at, sharding.StopUnsupported)
	w.until(t, "the vote has gone to another", func() bool {
		p, _ := w.state.View().Placement(sharding.MetaShard)
		r, ok := p.Replica(old.id)
		return ok && r.State == meta.ReplicaLearner && len(p.IDs(meta.ReplicaVoter)) == 3
	})
}

// A stopped replica may have a higher term than the leader. The leader
// continues to lead.
func TestTermOfStoppedReplicaIsIgnored(t *testing.T) {
	w := calmWorld(t, 3, 3)
	w.until(t, "whole", w.whole)
	at := w.leaderOf(1)
	w.sabotage.report = func(r *coordinator.Report) {
		for i := range r.Shards {
			if r.Shards[i].Stopped != sharding.NotStopped {
				r.Shards[i].Term += 50
			}
		}
	}
	var other sharding.NodeID
	for _, h := range w.hosts {
		if h.id != at {
			other = h.id
		}
	}
	old := w.stopOn(1, other, sharding.StopDamaged)
	w.until(t, "replaced", func() bool {
		p, _ := w.state.View().Placement(1)
		_, still := p.Replica(old.id)
		return !still && len(p.IDs(meta.ReplicaVoter)) == 3
	})
}

// Learners on nodes that cannot read the log are built on other nodes instead,
// and damage elsewhere is repaired meanwhile.
func TestNoReplicaIsBuiltOnNodeThatCannotReadTheLog(t *testing.T) {
	w := calmWorld(t, 3, 3)
	w.until(t, "whole", w.whole)
	old := []*host{w.addHost(), w.addHost()}
	w.until(t, "some are built", func() bool { return w.baffle(old) > 0 })
	damaged := w.stopOn(1, w.leaderOf(1), sharding.StopDamaged)
	w.until(t, "replaced", func() bool {
		w.baffle(old)
		p, _ := w.state.View().Placement(1)
		_, still := p.Replica(damaged.id)
		return !still && len(p.IDs(meta.ReplicaVoter)) == 3
	})
}

// If no other node can take learners that cannot read the log, they stay, never
// catch up, and do not count as being built.
func TestStuckLearnersDoNotBlockOthers(t *testing.T) {
	w := calmWorld(t, 5, 5)
	w.propose(meta.PutPolicy(meta.Policy{Replication: 5, MinMembers: 5, Rebalance: true}))
	w.until(t, "five voters of each", func() bool {
		for s := sharding.ShardID(1); s <= shards; s++ {
			if p, _ := w.state.View().Placement(s); w.groups[s] == nil || len(w.groups[s].replicas) != 5 || len(p.IDs(meta.ReplicaVoter)) != 5 {
				return false
			}
		}
		return true
	})
	old := w.hosts[3:]
	for s := sharding.ShardID(1); s <= shards; s++ {
		for _, h := range old {
			w.stopOn(s, h.id, sharding.StopDamaged)
		}
	}
	w.until(t, "as many are built as may be", func() bool { return w.baffle(old) >= maxBuilds })
	damaged := w.stopOn(1, w.hosts[2].id, sharding.StopDamaged)
	w.until(t, "another is replaced", func() bool {
		w.baffle(old)
		p, _ := w.state.View().Placement(1)
		r, on := p.ReplicaOn(w.hosts[2].id)
		return on && r.ID != damaged.id && r.State == meta.ReplicaVoter
	})
}

// baffle stops the learners on these hosts as if they could not read the log,
// and returns their number.
func (w *world) baffle(hosts []*host) (n int) {
	for s := sharding.ShardID(1); s <= shards; s++ {
		for _, h := range hosts {
			p, _ := w.state.View().Placement(s)
			if on, ok := p.ReplicaOn(h.id); ok && on.State == meta.ReplicaLearner && w.groups[s].replicas[on.ID] != nil {
				w.groups[s].replicas[on.ID].stopped = sharding.StopUnsupported
				n++
			}
		}
	}
	return n
}
