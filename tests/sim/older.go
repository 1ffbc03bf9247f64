package sim

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/hostd/hostd/journal/disk/disktest"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/sharding/staledisk"
)

// older is what disks that go back in time are drawn from. Now and then a node
// comes back with its disk as it was some starts ago, and nothing on it shows
// that. The others know of a later start of the node: it has to find that out
// before its groups vote, give the disk up, and return with an empty one.
type older struct {
	rng *rand.Rand
	// often: in one step of so many a disk is put back, 0 for never.
	often int
}

// chooseOlder draws, from a source of its own, whether disks go back in a
// world.
func (w *World) chooseOlder() {
	r := rand.New(rand.NewPCG(w.Seed, 5))
	w.older = older{rng: r}
	if w.profile.moves > 0 && r.IntN(2) == 0 {
		w.older.often = []int{2, 8}[r.IntN(2)]
		w.profile.crash = []int{60, 120}[r.IntN(2)]
	}
}

// starts is what a node's directory has of its starts and of those of others.
type starts struct {
	vouched, asked uint64
	witness        staledisk.Witness // never modified
}

// copied is all that a stopped node has on its disk.
type copied struct {
	disk    *disktest.Crashable
	store   *memStore
	machine *machine // that has ended
	gov     governed
	starts  starts
}

// perStep is more than the starts that a node can have in a step: their numbers
// grow with the time, as by a clock.
const perStep = 1000

// beginProbation gives a start its number, and leaves it to others whether
// its groups vote. A node whose disk is new has promised nothing.
func (n *node) beginProbation() {
	if n.w.older.often == 0 {
		return
	}
	n.trial = nil
	n.gov.incarnation = max(n.gov.incarnation, uint64(n.w.step)*perStep)
	s := &n.starts
	if s.vouched == 0 {
		s.vouched = n.gov.incarnation
		n.driver.Core().Release()
		return
	}
	if s.asked <= s.vouched {
		s.asked = max(n.gov.incarnation, s.vouched+1) + n.w.older.rng.Uint64N(perStep/10)
	}
	n.trial = staledisk.New(n.asks(), n.gov.view.Index(), metaVoters(n.gov.view))
}

func (n *node) asks() staledisk.Start {
	return staledisk.Start{Node: n.w.name(n.id), Attested: n.starts.vouched, Requested: n.starts.asked}
}

func metaVoters(view *meta.View) (nodes []sharding.NodeID) {
	p, _ := view.Placement(sharding.MetaShard)
	for _, r := range p.Replicas {
		if r.State == meta.ReplicaVoter {
			nodes = append(nodes, r.Node)
		}
	}
	return nodes
}

// prove asks the others about the start, now and then, until they have said
// enough.
func (n *node) prove() {
	w := n.w
	if n.trial == nil || !w.healing && w.older.rng.IntN(6) > 0 {
		return
	}
	for i, other := range w.nodes {
		if i == n.id || !other.up || other.paused > w.step || w.cut[[2]int{i, n.id}] || w.cut[[2]int{n.id, i}] {
			continue
		}
		latest, record := other.starts.witness.Evaluate(n.asks(), other.knows(n))
		if record {
			other.starts.witness = other.starts.witness.Record(n.asks())
		}
		if w.healing || w.older.rng.IntN(5) > 0 {
			n.trial.AddAnswer(staledisk.Answer{From: w.name(i), Latest: latest, Index: other.gov.view.Index(), Voters: metaVoters(other.gov.view)})
		}
	}
	switch n.trial.Result() {
	case staledisk.Passed:
		w.note("vouched %d %d", n.id, n.starts.asked)
		if n.behind {
			w.fail("I10: node %d may vote, and its disk is an older copy: all others know what it has forgotten", n.id)
			return
		}
		n.starts.vouched = max(n.starts.vouched, n.starts.asked, n.gov.incarnation)
		n.trial = nil
		n.driver.Core().Release()
	case staledisk.Stale:
		w.note("older %d", n.id)
		if !n.behind {
			w.fail("node %d takes its disk for an older copy of itself, and it is none: %+v", n.id, n.asks())
			return
		}
		w.count.found++
		n.crash(false)
		n.renew()
	}
}

// knows is the start of another node that the metadata of this one names.
func (n *node) knows(other *node) uint64 {
	m, _ := n.gov.view.Member(n.w.name(other.id))
	return m.Incarnation
}

// keepCopy has somebody copy the disk of a node whose power has just gone, now
// and then.
func (n *node) keepCopy() {
	if n.w.older.often == 0 || n.trial != nil || n.starts.vouched == 0 || n.w.older.rng.IntN(2) > 0 {
		return
	}
	n.copied = &copied{disk: n.disk.Clone(), store: n.store.clone(), machine: n.machine, gov: n.gov, starts: n.starts}
}

// putBack gives a node its disk as it was when it was copied, where every shard
// can do without the disk that it has, and all others know of a later start. A
// start that only lost disks knew cannot be noticed.
func (w *World) putBack(n *node) {
	k := n.copied
	if k == nil || !n.up || n.trial != nil || k.starts.vouched >= n.starts.vouched || w.anyBehind() || !w.doesWithout(n) || len(metaVoters(k.gov.view)) == 1 {
		return
	}
	for _, other := range w.nodes {
		if known := max(other.starts.witness[w.name(n.id)], other.knows(n)); other != n && known <= k.starts.vouched {
			return
		}
	}
	n.crash(true)
	n.disk, n.store, n.machine, n.gov, n.starts = k.disk.Clone(), k.store.clone(), k.machine, k.gov, k.starts
	n.behind = true
	w.count.back++
	w.note("put back %d", n.id)
}

// anyBehind: some node has an older disk and does not know yet.
func (w *World) anyBehind() bool {
	return slices.ContainsFunc(w.nodes, func(n *node) bool { return n.behind })
}

// clone copies the store of a process that has ended.
func (s *memStore) clone() *memStore {
	out := *s
	out.keys, out.versions = slices.Clone(s.keys), maps.Clone(s.versions)
	for key, list := range out.versions {
		out.versions[key] = slices.Clone(list)
	}
	out.views, out.lied, out.hid = map[uint64]int{}, map[sharding.ShardID]bool{}, map[sharding.ShardID]bool{}
	return &out
}
