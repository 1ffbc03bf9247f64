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

// older draws old disks: sometimes a node comes back with a copy of its disk
// from several incarnations ago, and nothing on the disk shows that. The other
// nodes know of a later incarnation. The node has to learn of that incarnation
// from them before its groups vote. It must then discard the disk and return
// with an empty disk.
type older struct {
	rng *rand.Rand
	// often is the rate of replacements: a disk is replaced by its copy once in
	// this many steps. 0 means never.
	often int
}

// chooseOlder draws, from a random source of its own, whether a world has old
// disks.
func (w *World) chooseOlder() {
	r := rand.New(rand.NewPCG(w.Seed, 5))
	w.older = older{rng: r}
	if w.profile.moves > 0 && r.IntN(2) == 0 {
		w.older.often = []int{2, 8}[r.IntN(2)]
		w.profile.crash = []int{60, 120}[r.IntN(2)]
	}
}

// starts has the records in a node's directory about the incarnations of the
// node itself and of other nodes.
type starts struct {
	vouched, asked uint64
	witness        staledisk.Witness // never modified
}

// copied is a copy of everything on the disk of a stopped node.
type copied struct {
	disk    *disktest.Crashable
	store   *memStore
	machine *machine // machine of the process that has ended
	gov     governed
	starts  starts
}

// perStep is greater than the number of starts that a node can have in one
// step, so that incarnations grow with time, as if they came from a clock.
const perStep = 1000

// beginProbation begins the stale-disk check of an incarnation: the node's
// groups do not vote until the other nodes attest the incarnation. A node with
// a new disk needs no check, because it has promised nothing.
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

// prove asks the other nodes to attest the node's incarnation, in some steps
// only, until enough of them have answered.
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

// knows returns the newest incarnation of another node in this node's view of
// the metadata.
func (n *node) knows(other *node) uint64 { return n.gov.view.LastStart(n.w.name(other.id)) }

// keepCopy sometimes copies the disk of a node that has just lost power.
func (n *node) keepCopy() {
	if n.w.older.often == 0 || n.trial != nil || n.starts.vouched == 0 || n.w.older.rng.IntN(2) > 0 {
		return
	}
	n.copied = &copied{disk: n.disk.Clone(), store: n.store.clone(), machine: n.machine, gov: n.gov, starts: n.starts}
}

// putBack replaces a node's disk by the copy, if every shard can do without the
// current disk and all other nodes know of a later incarnation. If only lost
// disks knew of the later incarnation, the old disk could not be detected.
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

// anyBehind reports whether a node has an old disk that it has not detected
// yet.
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
