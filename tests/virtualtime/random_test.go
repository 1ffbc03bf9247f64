package virtualtime

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var scenarios = flag.Int("scenarios", 1, "how many scenarios of random faults are run")

// faultsAScenario is the number of faults in a random scenario.
const faultsAScenario = 6

// nemesis injects faults into a cluster and heals them.
type nemesis struct {
	*world
	rng *rand.Rand
}

// TestRandomFaults injects one fault after the other; some of them overlap. All
// answers to callers must be consistent with the data on every replica. The
// seed determines the faults and the calls, but not the scheduling of
// goroutines.
func TestRandomFaults(t *testing.T) {
	for i := range *scenarios {
		s := *seed + uint64(i)
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(s, 7))
			opts := options{nodes: 3 + rng.IntN(3), shards: uint32(3 + rng.IntN(6))}
			t.Logf("%d nodes, %d shards; again with -run TestRandomFaults -scenarios 1 -seed %d", opts.nodes, opts.shards, s)
			run(t, opts, func(t *testing.T, w *world) {
				w.loaded(2 * pace)
				n := nemesis{w, rng}
				for range faultsAScenario {
					n.strike()
				}
				w.judge()
			})
		})
	}
}

// strike injects a fault, waits, heals it and waits until the cluster has
// recovered.
func (n nemesis) strike() {
	n.t.Helper()
	name, mend := n.fault()
	n.t.Logf("%v: %s", time.Now().UTC().Format("04:05.000"), name)
	n.sleep(8 * time.Second)
	again := func() {}
	if n.rng.IntN(3) == 0 {
		var second string
		if second, again = n.lesser(); second != "" {
			n.t.Logf("and: %s", second)
		}
		n.sleep(4 * time.Second)
	}
	mend()
	again()
	n.net.HealAll()
	n.settled()
	n.acknowledged(10)
}

func (n nemesis) sleep(most time.Duration) { time.Sleep(time.Duration(n.rng.Int64N(int64(most)))) }

// any returns a random node.
func (n nemesis) any() int { return 1 + n.rng.IntN(n.opts.nodes) }

// some returns a random set of one to most nodes.
func (n nemesis) some(most int) (nodes []int) {
	for _, k := range n.rng.Perm(n.opts.nodes)[:1+n.rng.IntN(most)] {
		nodes = append(nodes, 1+k)
	}
	return nodes
}

func (n nemesis) fault() (name string, mend func()) {
	switch n.rng.IntN(8) {
	case 0:
		victims := n.some(n.opts.nodes)
		n.kill(victims...)
		return fmt.Sprintf("killed %v", victims), func() { n.start(victims...) }
	case 1:
		victim := n.any()
		n.stop(victim)
		return fmt.Sprintf("stopped n%d", victim), func() { n.start(victim) }
	case 2, 3:
		side := n.some(n.opts.nodes - 1)
		oneWay := n.rng.IntN(3) == 0
		n.cut(side, oneWay)
		return fmt.Sprintf("cut off %v, one way: %v", side, oneWay), n.net.HealAll
	case 4:
		victim := n.net.Host(hostOf(n.any()))
		victim.Freeze()
		return "froze a node", victim.Thaw
	case 5:
		victim := n.any()
		n.until("every shard has its voters", func() bool { return n.allVoted(3) })
		n.kill(victim)
		n.forget(victim)
		return fmt.Sprintf("n%d lost its disk", victim), func() {
			n.start(victim)
			n.net.HealAll()
			n.until("every shard has its voters again", func() bool { return n.allVoted(3) })
		}
	default:
		return n.lesser()
	}
}

// lesser returns a fault that can be combined with another fault.
func (n nemesis) lesser() (name string, mend func()) {
	nothing := func() {}
	switch n.rng.IntN(3) {
	case 0:
		shard, to := uint32(n.rng.IntN(int(n.opts.shards)+1)), n.any()
		err := n.client().MoveShard(n.soon(), shard, string(id(to)))
		return fmt.Sprintf("moved shard %d to n%d: %v", shard, to, err), nothing
	case 1:
		a, b := n.any(), n.any()
		n.net.Break(hostOf(a), hostOf(b))
		return fmt.Sprintf("reset the connections between n%d and n%d", a, b), nothing
	default:
		a, b := n.any(), n.any()
		slow := time.Duration(n.rng.Int64N(int64(400 * time.Millisecond)))
		if a == b {
			return "", nothing
		}
		n.net.Delay(hostOf(a), hostOf(b), slow)
		return fmt.Sprintf("made n%d to n%d take %v", a, b, slow), func() { n.net.Delay(hostOf(a), hostOf(b), hop) }
	}
}

// cut isolates nodes from the other nodes and from the callers.
func (n nemesis) cut(side []int, oneWay bool) {
	within := map[string]bool{}
	for _, i := range side {
		within[hostOf(i)] = true
	}
	others := []string{callersHost}
	for _, i := range n.all() {
		if !within[hostOf(i)] {
			others = append(others, hostOf(i))
		}
	}
	for from := range within {
		for _, to := range others {
			n.net.Cut(from, to)
			if !oneWay {
				n.net.Cut(to, from)
			}
		}
	}
}
