package raftgroup

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// steadyTurns returns the number of turns of groups that took no raft.Ready.
func (d *drill) steadyTurns() (n uint64) {
	for _, m := range d.nodes {
		n += m.driver.core.stats.Steady
	}
	return n
}

// twins are two clusters with the same inputs. In one cluster, every turn takes
// a raft.Ready.
type twins struct {
	t     *testing.T
	both  [2]*drill
	story []string
}

func newTwins(t *testing.T, nodes, shards int) *twins {
	w := &twins{t: t}
	for i := range w.both {
		d := &drill{t: t, cut: map[[2]int]bool{}, tune: func(o *Options) {
			o.WithoutSteady = i == 1
			o.TruncateTicks, o.RetainBytes = 3, 512
			o.MaxInflightMessages, o.MaxMessageBytes, o.MaxApplyBytes, o.MaxUncommittedBytes = 16, 300, 200, 600
		}}
		d.begin(nodes)
		d.fill(shards)
		w.both[i] = d
		var all []sharding.ShardID
		for s := 1; s <= shards; s++ {
			all = append(all, sharding.ShardID(s))
		}
		d.nodes[0].driver.Core().campaignNow(all)
		d.settle()
		d.until("leaders", 60, func() bool { return d.led(shards) })
	}
	return w
}

// do calls fn on both clusters and records the step in the story.
func (w *twins) do(what string, fn func(d *drill)) {
	w.story = append(w.story, what)
	for _, d := range w.both {
		fn(d)
	}
}

// compare compares the logs of the replicas of both clusters. If complete is
// set, it also compares their commit and applied indexes.
func (w *twins) compare(shards int, complete bool) {
	w.t.Helper()
	for i := range w.both[0].nodes {
		for s := sharding.ShardID(1); int(s) <= shards; s++ {
			a, b := w.both[0].nodes[i].group(int(s)), w.both[1].nodes[i].group(int(s))
			if !w.both[0].nodes[i].up {
				continue
			}
			same := a.log.Last() == b.log.Last() && a.term == b.term && a.lead == b.lead && a.hard.Term == b.hard.Term
			if a.leader || complete {
				same = same && a.hard.Commit == b.hard.Commit && a.applied == b.applied
			}
			for k := max(a.log.TruncatedIndex(), b.log.TruncatedIndex()) + 1; same && k <= a.log.Last(); k++ {
				x, errX := a.log.Entries(k, k+1, 1<<40)
				y, errY := b.log.Entries(k, k+1, 1<<40)
				same = errX == nil && errY == nil && x[0].GetTerm() == y[0].GetTerm() && x[0].GetType() == y[0].GetType() && string(x[0].GetData()) == string(y[0].GetData())
			}
			if !same {
				w.t.Fatalf("shard %d of node %d: steady: term %d leader %d last %d commit %d applied %d, with raft alone: %d %d %d %d %d, after %q", s, i,
					a.term, a.lead, a.log.Last(), a.hard.Commit, a.applied, b.term, b.lead, b.log.Last(), b.hard.Commit, b.applied, w.story)
			}
		}
	}
}

// TestSteadyTurnsAgreeWithRaft gives the same inputs to two clusters, one of
// which leaves every turn to raft. The logs of both clusters must be equal.
func TestSteadyTurnsAgreeWithRaft(t *testing.T) {
	const shards = 3
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			nodes := []int{3, 3, 3, 5}[seed%4]
			w := newTwins(t, nodes, shards)
			w.compare(shards, false)
			number, cutFor, cutOff := uint64(0), 0, 0
			for step := range 120 {
				s := sharding.ShardID(1 + rng.IntN(shards))
				switch k := rng.IntN(20); {
				case k < 12: // some proposals, of which some have a wrong fence or are large
					var sizes, fences []int
					for range 1 + rng.IntN(4) {
						sizes = append(sizes, rng.IntN(40)+rng.IntN(2)*rng.IntN(2)*rng.IntN(250))
						fences = append(fences, rng.IntN(15)/14)
					}
					first := number
					number += uint64(len(sizes))
					w.do(fmt.Sprint("propose ", s, sizes, fences), func(d *drill) {
						n := d.leader(int(s))
						if n == nil {
							return
						}
						for i, size := range sizes {
							data := append([]byte(fmt.Sprint(seed, " ", first+uint64(i), " ")), make([]byte, size)...)
							if err := n.driver.Core().Propose(s, n.sink.leader(s).Term+sharding.Term(fences[i]), first+uint64(i), data); err != nil {
								t.Fatal(err)
							}
						}
						d.settle()
					})
				case k < 15:
					w.do("beat", func(d *drill) { d.beat() })
					if cutFor > 0 {
						if cutFor--; cutFor == 0 {
							w.do("mend", func(d *drill) {
								clear(d.cut)
								for range 6 { // entries that a follower missed are sent
									d.beat()
								}
							})
						}
					}
				case k < 16 && cutFor == 0: // a follower misses some frames
					cutFor, cutOff = 1+rng.IntN(3), 1+rng.IntN(nodes-1)
					w.do(fmt.Sprint("cut off ", cutOff), func(d *drill) {
						for i := range d.nodes {
							d.cut[[2]int{i, cutOff}], d.cut[[2]int{cutOff, i}] = true, true
						}
					})
				case k < 17:
					w.do(fmt.Sprint("read ", s), func(d *drill) {
						if n := d.leader(int(s)); n != nil {
							if err := n.driver.Core().ReadIndex(s, number); err != nil {
								t.Fatal(err)
							}
							d.settle()
						}
					})
				case k < 18:
					w.do("flush and ask for the status", func(d *drill) {
						for _, n := range d.nodes {
							n.machine.flush()
							n.driver.Core().statuses()
						}
					})
				case k < 19 && cutFor == 0:
					to := rng.IntN(nodes)
					w.do(fmt.Sprint("transfer ", s, " to ", to), func(d *drill) {
						if n := d.leader(int(s)); n != nil {
							if err := n.driver.Core().TransferLeader(s, d.replica(int(s), to)); err != nil {
								t.Fatal(err)
							}
							d.settle()
						}
					})
				case cutFor == 0:
					out, add := rng.IntN(nodes), rng.IntN(2) == 0
					w.do(fmt.Sprint("member ", out, " of ", s, " ", add), func(d *drill) {
						n := d.leader(int(s))
						if n == nil || n.i == out {
							return
						}
						change := Change{AddLearners: []sharding.ReplicaID{d.replica(int(s), out)}}
						if add {
							change = Change{AddVoters: []sharding.ReplicaID{d.replica(int(s), out)}}
						}
						if err := n.driver.Core().ChangeMembers(s, n.sink.leader(s).Term, change); err != nil && err != ErrDropped {
							t.Fatal(err)
						}
						d.settle()
					})
				}
				if cutFor == 0 && step%10 == 9 {
					w.compare(shards, false)
				}
			}
			w.do("come to rest", func(d *drill) {
				clear(d.cut)
				for range 12 {
					d.beat()
				}
			})
			w.compare(shards, true)
			for i := range w.both[0].nodes {
				for s := sharding.ShardID(1); s <= shards; s++ {
					if a, b := w.both[0].nodes[i].machine.data(s), w.both[1].nodes[i].machine.data(s); !slices.Equal(a, b) {
						t.Errorf("shard %d of node %d applied %q, with raft alone %q", s, i, a, b)
					}
				}
			}
			if w.both[0].steadyTurns() < 50 || w.both[1].steadyTurns() > 0 {
				t.Errorf("%d and %d steady turns", w.both[0].steadyTurns(), w.both[1].steadyTurns())
			}
			w.recover()
		})
	}
}

// recover recovers the logs on the disks of both clusters and compares them.
func (w *twins) recover() {
	for i := range w.both[0].nodes {
		var recs [2]*recovery.Recovered
		for k, d := range w.both {
			n := d.nodes[i]
			if err := n.driver.finalRecord(); err != nil {
				w.t.Fatal(err)
			}
			log, err := wal.Open(n.fs, "wal", wal.Options{Rand: func() uint64 { return 7 }})
			if err != nil {
				w.t.Fatal(err)
			}
			if recs[k], err = recovery.Recover(log); err != nil {
				w.t.Fatal(err)
			}
		}
		for g := range recs[0].Groups {
			a, b := &recs[0].Groups[g], &recs[1].Groups[g]
			if a.Shard != b.Shard || a.Hard != b.Hard || a.Log.Last() != b.Log.Last() {
				w.t.Errorf("node %d recovers shard %d with %+v up to %d, with raft alone %+v up to %d", i, a.Shard, a.Hard, a.Log.Last(), b.Hard, b.Log.Last())
			}
		}
	}
}

// TestSteadyGroupsDoNotCallRaft: while a log only grows, no turn takes a
// raft.Ready, and raft sees few ticks.
func TestSteadyGroupsDoNotCallRaft(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	n := d.lead(1, 0)
	term := n.sink.leader(1).Term
	d.write(1, "first", 0, 1, 2)
	propose := func(data string) {
		if err := n.driver.Core().Propose(1, term, 1, []byte(data)); err != nil {
			t.Fatal(err)
		}
		d.settle()
	}
	propose("second")
	before, readies := d.steadyTurns(), uint64(0)
	for _, m := range d.nodes {
		readies -= m.driver.core.stats.Readies
	}
	for i := range 100 {
		propose(fmt.Sprint(i))
		if i%5 == 4 {
			d.beat()
		}
	}
	for _, m := range d.nodes {
		readies += m.driver.core.stats.Readies
		if got := m.machine.index(1); got < n.group(1).log.Last()-1 {
			t.Errorf("node %d applied up to %d of %d", m.i, got, n.group(1).log.Last())
		}
	}
	if steady := d.steadyTurns() - before; steady < 300 || readies > 40 {
		t.Errorf("%d steady turns, and %d of raft", steady, readies)
	}
}

// TestSteadyFollowerRefusesGaps: an append that does not continue the log is
// left to raft, which rejects it.
func TestSteadyFollowerRefusesGaps(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	n := d.lead(1, 0)
	d.write(1, "a", 0, 1, 2)
	d.write(1, "b", 0, 1, 2)
	d.cut[[2]int{0, 2}] = true
	if err := n.driver.Core().Propose(1, n.sink.leader(1).Term, 1, []byte("lost")); err != nil {
		t.Fatal(err)
	}
	d.settle()
	clear(d.cut)
	d.write(1, "c", 0, 1, 2)
	if got := d.nodes[2].machine.data(1); !slices.Equal(got, []string{"a", "b", "lost", "c"}) {
		t.Errorf("the follower applied %q", got)
	}
}

// TestSteadyLogIsTruncatedWithRaft: raft has applied all entries that are
// truncated.
func TestSteadyLogIsTruncatedWithRaft(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		d := &drill{t: t, cut: map[[2]int]bool{}, tune: func(o *Options) { o.TruncateTicks, o.RetainBytes = 1, 1 }}
		d.begin(nodes)
		d.fill(1)
		d.until("a leader", 60, func() bool { return d.led(1) })
		all := []int{0, 1, 2}[:nodes]
		for i := range 60 {
			d.write(1, fmt.Sprint(i), all...)
			for _, m := range d.nodes {
				m.machine.flush()
			}
			if i%3 == 2 {
				d.beat()
			}
		}
		for _, m := range d.nodes {
			if m.group(1).log.TruncatedIndex() < 30 {
				t.Errorf("of %d nodes, node %d has truncated up to %d", nodes, m.i, m.group(1).log.TruncatedIndex())
			}
			m.restart()
		}
		d.until("a leader", 60, func() bool { return d.led(1) })
		d.write(1, "after", all...)
	}
}
