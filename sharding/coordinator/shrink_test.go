package coordinator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// fiveVoters is a calm world of five nodes whose shards all have five voters.
func fiveVoters(t *testing.T) *world {
	t.Helper()
	w := calmWorld(t, 5, 3)
	w.replicate(5)
	w.until(t, "five voters each", func() bool { return w.votersEverywhere(5) })
	return w
}

func (w *world) replicate(n int) {
	w.propose(meta.PutPolicy(meta.Policy{Replication: n, MinMembers: 3, Rebalance: true}))
}

// votersEverywhere reports whether each group and its placement have exactly n
// voters, all alive.
func (w *world) votersEverywhere(n int) bool {
	for s := range sharding.ShardID(shards + 1) {
		g := w.groups[s]
		p, placed := w.state.View().Placement(s)
		if g == nil || g.lead() == nil || !placed {
			return false
		}
		c := g.confOf(g.lead())
		alive := func(id sharding.ReplicaID) bool { r := g.replicas[id]; return r != nil && r.node.linked() }
		if len(c.voters) != n || len(c.outgoing) > 0 || len(p.IDs(meta.ReplicaVoter)) != n || slices.ContainsFunc(c.voters, func(id sharding.ReplicaID) bool { return !alive(id) }) {
			return false
		}
	}
	return true
}

func (w *world) kill(nodes ...int) {
	for _, i := range nodes {
		w.hosts[i].running, w.hosts[i].dead = false, true
	}
}

func (w *world) isMember(i int) bool {
	_, member := w.state.View().Member(w.hosts[i].id)
	return member
}

// Five voters with two dead survive no further failure. The voters of nodes
// that an operator declared down therefore leave, although nothing can replace
// them. Then the nodes are removed, and one more node may fail.
func TestDeadVotersOfDownedNodesLeave(t *testing.T) {
	w := fiveVoters(t)
	w.kill(3, 4)
	for i := 3; i < 5; i++ {
		if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationDown, Node: w.hosts[i].id}); p.Err != nil {
			t.Fatal(p.Err)
		}
	}
	w.until(t, "three live voters each", func() bool { return w.votersEverywhere(3) })
	w.until(t, "the dead nodes are no members", func() bool { return !w.isMember(3) && !w.isMember(4) })
	w.kill(2)
	w.until(t, "two of three lead on", func() bool {
		for s := range sharding.ShardID(shards + 1) {
			if l := w.groups[s].lead(); l == nil || !l.node.linked() {
				return false
			}
		}
		return true
	})
}

// If one of five voters is dead, the dead voter stays: three voters would
// survive no more failures than the four live voters of five, and more copies
// are better.
func TestDeadVoterStaysIfRemovalDoesNotHelp(t *testing.T) {
	for _, tt := range []struct{ nodes, replication int }{{3, 3}, {5, 5}} {
		t.Run(fmt.Sprint(tt.nodes), func(t *testing.T) {
			w := calmWorld(t, tt.nodes, 3)
			w.replicate(tt.replication)
			w.until(t, "all vote", func() bool { return w.votersEverywhere(tt.replication) })
			last := tt.nodes - 1
			w.kill(last)
			if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationDown, Node: w.hosts[last].id}); p.Err != nil {
				t.Fatal(p.Err)
			}
			for range 200 {
				w.tick()
			}
			for s := range sharding.ShardID(shards + 1) {
				if p, _ := w.state.View().Placement(s); len(p.IDs(meta.ReplicaVoter)) != tt.replication {
					t.Errorf("shard %d: %v", s, p.Replicas)
				}
			}
			w.addHost()
			w.until(t, "another node takes its place", func() bool { return w.votersEverywhere(tt.replication) && !w.isMember(last) })
		})
	}
}

// A lower replication takes effect although two voters are dead or unreachable,
// and removes the dead voters.
func TestLowerReplicationRemovesDeadVoters(t *testing.T) {
	for _, tt := range []struct {
		name string
		down bool
	}{{"taken for dead", true}, {"out of reach", false}} {
		t.Run(tt.name, func(t *testing.T) {
			w := fiveVoters(t)
			w.kill(3, 4)
			status := func(i int) meta.MemberStatus { m, _ := w.state.View().Member(w.hosts[i].id); return m.Status }
			if tt.down {
				w.until(t, "down", func() bool { return status(3) == meta.StatusDown && status(4) == meta.StatusDown })
			}
			w.replicate(3)
			w.until(t, "three live voters each", func() bool { return w.votersEverywhere(3) })
		})
	}
}

// Nodes can leave at the same time even if they hold most of the voters,
// although the metadata does not allow dropping most replicas of a shard in one
// change.
func TestMajorityOfVotersCanLeaveAtOnce(t *testing.T) {
	for _, tt := range []struct{ nodes, replication, stay int }{{3, 3, 1}, {5, 5, 2}, {5, 5, 1}, {7, 7, 3}, {3, 1, 1}} {
		t.Run(fmt.Sprintf("%d of %d stay, replication %d", tt.stay, tt.nodes, tt.replication), func(t *testing.T) {
			w := calmWorld(t, tt.nodes, 3)
			w.replicate(max(tt.replication, 3))
			w.until(t, "all vote", func() bool { return w.votersEverywhere(max(tt.replication, 3)) })
			w.replicate(tt.replication)
			left := func() bool {
				return !slices.ContainsFunc(w.hosts[tt.stay:], func(h *host) bool { _, is := w.state.View().Member(h.id); return is })
			}
			taken := -1
			w.until(t, "the others have left", func() bool {
				if taken != w.stats["coordinators"] { // an operation ends with its coordinator unless it is durable
					taken = w.stats["coordinators"]
					for i, h := range w.hosts[tt.stay:] {
						h.leaving = true
						w.operations = append(w.operations, coordinator.Operation{ID: uint64(1000*taken + i + 1), Kind: coordinator.OperationLeave, Node: h.id})
					}
				}
				return left()
			})
			w.until(t, "those that stay serve", func() bool { return w.whole() && w.votersEverywhere((min(tt.stay, tt.replication)-1)/2*2+1) })
			if refused := w.stats["refused"]; refused > 20 {
				t.Errorf("the metadata refused %d commands", refused)
			}
		})
	}
}

// A node that leaves keeps its votes while nothing can replace them and a node
// that stays does not answer. Otherwise the shards would have fewer copies than
// the nodes allow, possibly only one copy. The operation is pending with the
// reason, and continues when the other node is back, or when an operator
// declares that node down.
func TestLeaveWaitsForNodesThatStay(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		for name, tt := range map[string]struct {
			fail, repair func(w *world, i int)
			reason       string
		}{
			"stopped":                {func(w *world, i int) { w.hosts[i].running = false }, func(w *world, i int) { w.restart(w.hosts[i]) }, "node n2"},
			"declared dead":          {func(w *world, i int) { w.hosts[i].running = false; w.untilDown(i) }, func(w *world, i int) { w.restart(w.hosts[i]) }, "node n2 is down"},
			"cut off":                {func(w *world, i int) { w.hosts[i].cut = true }, func(w *world, i int) { w.hosts[i].cut = false }, "node n2"},
			"without Raft":           {func(w *world, i int) { w.hosts[i].mute = true; w.write(200) }, func(w *world, i int) { w.hosts[i].mute = false }, "node n2"},
			"without Raft, few lost": {func(w *world, i int) { w.hosts[i].mute = true; w.write(1) }, func(w *world, i int) { w.hosts[i].mute = false }, ""},
		} {
			for _, forced := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d nodes, n2 %s, forced %v", nodes, name, forced), func(t *testing.T) {
					w := calmWorld(t, nodes, 3)
					w.replicate(nodes)
					w.until(t, "all vote", func() bool { return w.votersEverywhere(nodes) && w.nothingPending() })
					last := nodes - 1
					w.crownAll(w.hosts[0])
					tt.fail(w, 1)
					w.hosts[last].leaving = true
					w.until(t, "leaving", func() bool {
						if w.at != nil && w.statusOf(last) != meta.StatusLeaving {
							w.operations = append(w.operations, coordinator.Operation{ID: 1<<40 + w.index, Kind: coordinator.OperationLeave, Node: w.hosts[last].id})
						}
						return w.statusOf(last) == meta.StatusLeaving
					})
					for range 300 {
						w.tick()
						for s := range sharding.ShardID(shards + 1) {
							if c := w.groups[s].confAtIndex(w.groups[s].commit); len(c.voters) < nodes {
								t.Fatalf("shard %d lost a voter: %s", s, w.draw(w.groups[s]))
							}
						}
					}
					p, is := w.pendingFor(coordinator.PendingLeave, last)
					if !is || p.Remaining != shards+1 || !strings.Contains(p.Reason, tt.reason) {
						t.Errorf("pending: %v, %+v, want a reason with %q", is, p, tt.reason)
					}
					if w.fault != "" {
						t.Fatal(w.fault)
					}
					if forced {
						w.kill(1)
						w.until(t, "down", func() bool {
							if w.at != nil && !w.downed(1) {
								w.operations = append(w.operations, coordinator.Operation{ID: 1<<40 + w.index, Kind: coordinator.OperationDown, Node: w.hosts[1].id})
							}
							return w.downed(1)
						})
					} else {
						tt.repair(w, 1)
					}
					stay := nodes - 1
					if forced {
						stay--
					}
					w.until(t, "left", func() bool { return !w.isMember(last) && w.isMember(1) != forced })
					w.until(t, "the others serve", func() bool { return w.votersEverywhere((stay-1)/2*2 + 1) })
				})
			}
		}
	}
}

// TestDepartureIsCheckedAfterOthersAreGivenUp: nodes confirm their copies while
// another node is dead. After an operator gives the dead node up, these
// confirmations do not allow a leaving node to go, because one of the
// confirming nodes may have stopped working meanwhile.
func TestDepartureIsCheckedAfterOthersAreGivenUp(t *testing.T) {
	const nodes, dead, mute, last = 5, 1, 2, 4
	w := calmWorld(t, nodes, 3)
	w.replicate(nodes)
	w.until(t, "all vote", func() bool { return w.votersEverywhere(nodes) && w.nothingPending() })
	w.crownAll(w.hosts[0])
	w.hosts[dead].running = false
	w.untilDown(dead)
	w.hosts[last].leaving = true
	w.until(t, "leaving", func() bool {
		if w.at != nil && w.statusOf(last) != meta.StatusLeaving {
			w.operations = append(w.operations, coordinator.Operation{ID: 1<<40 + w.index, Kind: coordinator.OperationLeave, Node: w.hosts[last].id})
		}
		return w.statusOf(last) == meta.StatusLeaving
	})
	for range 100 {
		w.tick()
	}
	w.hosts[mute].mute = true
	w.write(1)
	w.until(t, "down", func() bool {
		if w.at != nil && !w.downed(dead) {
			w.operations = append(w.operations, coordinator.Operation{ID: 1<<40 + w.index, Kind: coordinator.OperationDown, Node: w.hosts[dead].id})
		}
		return w.downed(dead)
	})
	for range 300 {
		w.tick()
		for s := range sharding.ShardID(shards + 1) {
			g := w.groups[s]
			if !slices.ContainsFunc(g.confAtIndex(g.commit).voters, func(id sharding.ReplicaID) bool { return g.replicas[id].node == w.hosts[last] }) {
				t.Fatalf("shard %d lost a copy: %s", s, w.draw(g))
			}
		}
	}
	w.hosts[mute].mute = false
	w.until(t, "left", func() bool { return !w.isMember(last) })
}

func (w *world) statusOf(i int) meta.MemberStatus {
	m, _ := w.state.View().Member(w.hosts[i].id)
	return m.Status
}

// downed reports whether an operator declared the node down, even if the node
// has been removed since.
func (w *world) downed(i int) bool {
	m, is := w.state.View().Member(w.hosts[i].id)
	return !is || m.Downed
}

func (w *world) untilDown(i int) {
	for n := 0; n < 400 && w.statusOf(i) != meta.StatusDown; n++ {
		w.tick()
	}
}

// crownAll makes the node lead all shards.
func (w *world) crownAll(h *host) {
	for s := range sharding.ShardID(shards + 1) {
		if g := w.groups[s]; g.lead().node != h {
			g.transfer(g.on(h).id)
		}
	}
}

// write appends entries to all groups except that of the metadata shard.
func (w *world) write(n int) {
	for s := sharding.ShardID(1); s <= shards; s++ {
		for range n {
			w.groups[s].append(nil)
		}
	}
	for range 40 {
		w.tick()
	}
}
