package cluster

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

var (
	kills          = flag.Int("kills", 1, "how often a leading node is killed, for figures")
	failoverShards = flag.Int("failover-shards", 12, "shards of the cluster that figures of fail-over are taken from")
)

// failover is the effect of one kill on callers.
type failover struct {
	victim                    string
	led                       int
	gaps, others              []time.Duration // gaps of entities whose leader was killed, and of all other entities
	allLed, started, caughtUp time.Duration
}

// TestFailOver kills a node that leads its share of shards under load, and
// starts it again. It prints the gaps that callers saw; use -v and many -kills
// for measurements. No command may fail, be lost or be executed twice.
func TestFailOver(t *testing.T) {
	testkit.Long(t, "long")
	cluster := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: *failoverShards})
	cluster.Push("counter")
	c := cluster.Client(client.Options{Timeout: testkit.Patience})
	ps := startProbes(t, c, *failoverShards, 50*time.Millisecond)
	var runs []failover
	for i := range *kills {
		awaitBalance(cluster, c, *failoverShards)
		cluster.Await("every probe is answered", func() bool { return ps.allAnswered(ps.h.Now() - time.Second) })
		runs = append(runs, failOver(cluster, ps, i%nodes))
		ps.noneFailed()
	}
	events := ps.end(c)
	t.Logf("%d shards, %d kills, %d events, each once\n%s", *failoverShards, *kills, events, failoverTable(runs))
}

// awaitBalance waits until leaderships are balanced over the nodes.
func awaitBalance(cluster *testkit.Cluster, c *client.Client, shards int) {
	cluster.AwaitSpread()
	cluster.Await("leaderships are shared out", func() bool {
		led := map[string]int{}
		for _, s := range cluster.Shards(0) {
			led[s.GetLeader()]++
		}
		for _, n := range cluster.Nodes() {
			if led[n.ID()] < shards/len(cluster.Nodes())*3/4 {
				return false
			}
		}
		return true
	})
}

// failOver kills a node, waits until every shard has a leader, starts the node
// again, and waits until its replicas have caught up.
func failOver(cluster *testkit.Cluster, ps *probes, victim int) failover {
	f := failover{victim: cluster.Node(victim).ID()}
	witness := (victim + 1) % nodes
	lost := map[int]bool{}
	for _, s := range cluster.Shards(witness) {
		if s.GetShardId() > 0 && s.GetLeader() == f.victim {
			lost[int(s.GetShardId())] = true
		}
	}
	f.led = len(lost)
	from := ps.h.Now()
	cluster.Kill(victim)
	cluster.Await("every shard is led", func() bool {
		for place := range cluster.Nodes() {
			if place == victim {
				continue
			}
			shards := cluster.Shards(place)
			if len(shards) == 0 {
				return false
			}
			for _, s := range shards {
				if s.GetLeader() == "" || s.GetLeader() == f.victim {
					return false
				}
			}
		}
		return true
	})
	f.allLed = ps.h.Now() - from
	led := ps.h.Now()
	cluster.Await("every probe is answered again", func() bool { return ps.allAnswered(led) })
	time.Sleep(time.Second) // wait, so that the gaps include late answers
	to := ps.h.Now()
	f.gaps = ps.gaps(from, to, func(shard int) bool { return lost[shard] })
	f.others = ps.gaps(from, to, func(shard int) bool { return !lost[shard] })
	returns := ps.h.Now()
	applied := map[uint32]uint64{}
	for _, s := range cluster.Shards(witness) {
		applied[s.GetShardId()] = s.GetAppliedIndex()
	}
	cluster.Node(victim).Start()
	f.started = ps.h.Now() - returns
	cluster.Await(f.victim+" has caught up", func() bool {
		shards := cluster.Shards(victim)
		for _, s := range shards {
			if s.GetAppliedIndex() < applied[s.GetShardId()] {
				return false
			}
		}
		return len(shards) > 0
	})
	f.caughtUp = ps.h.Now() - returns
	return f
}

func failoverTable(runs []failover) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "killed\tled\tgap p50\tp99\tmax\tothers p99\tall led\tserves\tcaught up\t")
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	line := func(f failover) {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", f.victim, f.led, quantile(f.gaps, 0.5), quantile(f.gaps, 0.99), quantile(f.gaps, 1),
			quantile(f.others, 0.99), ms(f.allLed), ms(f.started), ms(f.caughtUp))
	}
	all := failover{victim: "all"}
	for _, f := range runs {
		line(f)
		all.led += f.led
		all.gaps, all.others = append(all.gaps, f.gaps...), append(all.others, f.others...)
		all.allLed, all.started, all.caughtUp = max(all.allLed, f.allLed), max(all.started, f.started), max(all.caughtUp, f.caughtUp)
	}
	slices.Sort(all.gaps)
	slices.Sort(all.others)
	line(all)
	w.Flush()
	return b.String()
}
