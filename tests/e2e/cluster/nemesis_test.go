// Package cluster runs clusters of real processes under load while nodes are
// killed, frozen, stopped, wiped and isolated and shards are moved. It checks
// that everything acknowledged is there, once and in order, and that no caller
// received an impossible answer. It contains only tests.
package cluster

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/workload"
)

var (
	faults = flag.Int("faults", 4, "how many faults a run has")
	pause  = flag.Duration("pause", 10*time.Millisecond, "mean pause of a caller before a call: what is acknowledged has to be checked")
	seed   = flag.Uint64("seed", 0, "of the load and of the faults; 0 draws one")
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

const (
	// faultsPerEntities is the number of faults after which the load continues
	// with other entities, because a long history is slow to check.
	faultsPerEntities = 4
	// verdictTime limits the time for checking the history of one entity.
	verdictTime = time.Minute
	// nodes and shards are the sizes of the clusters.
	nodes, shards = 3, 12
)

// world is a cluster under load.
type world struct {
	*testkit.Cluster
	t    *testing.T
	rng  *rand.Rand
	h    *history.History
	load *workload.Load
	c    *client.Client
	done map[string]int // number of faults by kind

	progress progress // progress of the load
}

// progress reports the progress of a load.
type progress interface {
	Acknowledged() int
	Fault() error // an answer that no caller should receive; nil if there was none
}

// begin starts a cluster and the load.
func begin(t *testing.T) *world {
	t.Helper()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	if testing.Short() {
		*faults = min(*faults, 3)
	}
	t.Logf("repeat with -faults=%d -seed=%d", *faults, *seed)
	w := &world{
		Cluster: testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: shards}), t: t,
		rng: rand.New(rand.NewPCG(*seed, 1<<32)), h: history.New(), done: map[string]int{},
	}
	w.Push(workload.Types...)
	w.c = w.Client(client.Options{Timeout: testkit.Patience, MaxBackoff: 100 * time.Millisecond})
	w.load = workload.Start(workload.Options{Client: w.c, History: w.h, Seed: *seed, Patience: testkit.Patience, Pause: *pause})
	w.progress = w.load
	t.Cleanup(func() {
		if t.Failed() {
			w.load.Abandon()
		}
	})
	return w
}

// goesOn waits until the load has received the given number of further answers.
func (w *world) goesOn(answers int) {
	w.t.Helper()
	target := w.progress.Acknowledged() + answers
	w.Await("the load goes on", func() bool { return w.progress.Acknowledged() >= target || w.progress.Fault() != nil })
	if err := w.progress.Fault(); err != nil {
		w.t.Fatalf("a caller was told: %v", err)
	}
}

// pause sleeps for a random time below most.
func (w *world) pause(most time.Duration) { time.Sleep(time.Duration(w.rng.Int64N(int64(most)))) }

// kind is a fault that is injected into the cluster and healed.
type kind struct {
	name string
	do   func(victim int)
}

func (w *world) kinds() []kind {
	return []kind{
		{"kill", func(victim int) { w.Kill(victim); w.goesOn(50); w.pause(2 * time.Second); w.Node(victim).Start() }},
		{"freeze", func(victim int) { w.Pause(victim); w.pause(4 * time.Second); w.Continue(victim) }},
		{"stop", func(victim int) { w.Stop(victim); w.goesOn(50); w.Node(victim).Start() }},
		{"move", func(int) { w.move(10) }},
		{"kill all", func(int) { w.KillAll(); w.Start() }},
	}
}

// fault injects one fault and heals it.
func (w *world) fault() {
	w.t.Helper()
	kinds := w.kinds()
	w.do(kinds[w.rng.IntN(len(kinds))])
}

func (w *world) do(k kind) {
	w.t.Helper()
	victim := w.rng.IntN(nodes)
	w.done[k.name]++
	w.t.Logf("%s n%d", k.name, victim+1)
	k.do(victim)
}

// move transfers the leadership of random shards to nodes, which may already
// lead them.
func (w *world) move(times int) {
	w.t.Helper()
	for range times {
		shard, to := 1+w.rng.IntN(shards), fmt.Sprintf("n%d", 1+w.rng.IntN(nodes))
		if err := w.c.MoveShard(w.t.Context(), uint32(shard), to); err != nil {
			w.t.Fatalf("move shard %d to %s: %v", shard, to, err)
		}
		w.goesOn(5)
	}
}

// end heals everything and checks all answers.
func (w *world) end() {
	w.t.Helper()
	w.AwaitSpread()
	w.goesOn(200)
	if err := w.load.Stop(); err != nil {
		w.t.Fatalf("a caller was told: %v", err)
	}
	events, err := workload.ReadBack(w.t.Context(), w.c, w.h)
	if err != nil {
		w.t.Fatal(err)
	}
	checked, err := w.h.Linearizable(verdictTime, "account", "chain")
	if err != nil {
		w.t.Fatal(err)
	}
	awaitLevel(w.Cluster)
	w.StopAll()
	compared := checkReplicas(w.t, w.Cluster, shards, w.h)
	for _, n := range w.Nodes() {
		n.MustVerify()
	}
	w.Start()
	if _, err := workload.ReadBack(w.t.Context(), w.c, w.h); err != nil {
		w.t.Fatalf("after all were stopped in order: %v", err)
	}
	w.t.Logf("%v; %d acknowledged, %d rejected, %d failed, %d unknown, %d answered again; %d events of %d entities; %d operations linearizable; %d records alike on all replicas",
		w.done, w.h.Count(history.OK), w.h.Count(history.Rejected), w.h.Count(history.Failed), w.h.Count(history.Unknown), w.h.Duplicates(),
		events, len(w.h.Entities()), checked, compared)
}

// TestFaultsUnderLoad checks that under faults of single nodes and of all nodes
// at once, acknowledged data is kept and reads are never stale.
func TestFaultsUnderLoad(t *testing.T) {
	testkit.Long(t, "nemesis")
	w := begin(t)
	for i := range *faults {
		w.goesOn(100 + w.rng.IntN(300))
		w.fault()
		if i%faultsPerEntities == faultsPerEntities-1 {
			w.load.NextEntities()
		}
	}
	w.end()
}
