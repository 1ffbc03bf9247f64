// Package crash repeatedly kills a node with SIGKILL under load. It checks that
// everything acknowledged is there, once and in order, and that no caller
// received an impossible answer. It contains only tests.
package crash

import (
	"flag"
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
	cycles = flag.Int("cycles", 8, "how often the node is killed")
	seed   = flag.Uint64("seed", 0, "of the load and of the moments of the kills; 0 draws one")
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

const (
	// cyclesPerEntities is the number of kills after which the load continues
	// with other entities.
	cyclesPerEntities = 5
	// verdictTime limits the time for checking the history of one entity.
	verdictTime = time.Minute
)

func TestKillUnderLoad(t *testing.T) {
	testkit.Long(t, "kill")
	if testing.Short() {
		*cycles = min(*cycles, 2)
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with -cycles=%d -seed=%d", *cycles, *seed)
	rng := rand.New(rand.NewPCG(*seed, 1<<32))
	node := testkit.StartNode(t, testkit.NodeOptions{})
	node.Push(workload.Types...)
	c := node.Client(client.Options{Timeout: testkit.Patience, MaxBackoff: 50 * time.Millisecond})
	h := history.New()
	load := workload.Start(workload.Options{Client: c, History: h, Seed: *seed, Patience: testkit.Patience})
	stopped := false
	defer func() {
		if !stopped {
			node.Kill()
			load.Stop()
		}
	}()
	goesOn := func() {
		t.Helper()
		target := load.Acknowledged() + 100 + rng.IntN(400)
		node.Await("the load goes on", func() bool { return load.Acknowledged() >= target })
		if err := load.Fault(); err != nil {
			t.Fatalf("a caller was told: %v", err)
		}
	}
	for i := range *cycles {
		goesOn()
		time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Millisecond)))) // wait for a random part of the load
		node.Kill()
		node.MustVerify()
		if i%cyclesPerEntities == cyclesPerEntities-1 {
			load.NextEntities()
		}
		node.Start()
	}
	goesOn()
	stopped = true
	if err := load.Stop(); err != nil {
		t.Fatalf("a caller was told: %v", err)
	}

	events, err := workload.ReadBack(t.Context(), c, h)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := h.Linearizable(verdictTime, "account", "chain")
	if err != nil {
		t.Fatal(err)
	}
	node.Stop()
	node.MustVerify()
	node.Start()
	if _, err := workload.ReadBack(t.Context(), c, h); err != nil {
		t.Fatalf("after a stop in order: %v", err)
	}
	if h.Duplicates() < *cycles || h.Count(history.Unknown) == 0 {
		t.Errorf("the load was too tame: %d duplicates, %d unknown outcomes", h.Duplicates(), h.Count(history.Unknown))
	}
	t.Logf("%d kills; %d acknowledged, %d rejected, %d failed, %d unknown, %d answered again; %d events of %d entities; %d operations linearizable",
		*cycles, h.Count(history.OK), h.Count(history.Rejected), h.Count(history.Failed), h.Count(history.Unknown), h.Duplicates(),
		events, len(h.Entities()), checked)
}
