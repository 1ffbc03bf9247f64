package disk

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// filling writes large events until it is stopped. It retries each command
// until it is acknowledged.
type filling struct {
	round   int
	stop    chan struct{}
	callers sync.WaitGroup
	acked   [fillers]int // number of acknowledged commands, by entity
	refused atomic.Int64
	failed  atomic.Pointer[error]
}

const fillers = 16

func fill(t *testing.T, c *client.Client, round int) *filling {
	f := &filling{round: round, stop: make(chan struct{})}
	for w := range fillers {
		f.callers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-f.stop:
					return
				default:
				}
				command := client.Command{EntityType: bulkType, EntityID: filler(f.round, w), Name: "go", ID: fmt.Sprintf("%d-%d-%d", round, w, n)}
				_, err := c.Send(t.Context(), command)
				for refusedAsDamaged(err) {
					f.refused.Add(1)
					time.Sleep(100 * time.Millisecond)
					_, err = c.Send(t.Context(), command)
				}
				if err != nil {
					f.failed.Store(&err)
					return
				}
				f.acked[w]++
			}
		})
	}
	return f
}

func filler(round, w int) string { return fmt.Sprintf("%d-%d", round, w) }

// end stops the load and waits for its callers.
func (f *filling) end(t *testing.T) {
	t.Helper()
	close(f.stop)
	f.callers.Wait()
	if err := f.failed.Load(); err != nil {
		t.Errorf("a command failed: %v", *err)
	}
}

// check checks that each acknowledged command has one event.
func (f *filling) check(t *testing.T, c *client.Client) {
	t.Helper()
	total := 0
	for w, acked := range f.acked {
		e, err := c.Entity(t.Context(), bulkType, filler(f.round, w))
		if err != nil || e.GetSequence() != uint64(acked) {
			t.Errorf("%s: %d commands were acknowledged, %d events are there: %v", filler(f.round, w), acked, e.GetSequence(), err)
		}
		total += acked
	}
	t.Logf("%d large events, %d refused since what is stored is damaged", total, f.refused.Load())
}

// tablesOf returns the names of the tables of a store.
func tablesOf(t *testing.T, store string) map[string]bool {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(store, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	tables := make(map[string]bool, len(found))
	for _, path := range found {
		tables[filepath.Base(path)] = true
	}
	return tables
}

// gone returns how many of the earlier tables no longer exist.
func gone(before, now map[string]bool) (n int) {
	for name := range before {
		if !now[name] {
			n++
		}
	}
	return n
}

// awaitMerge waits until a node's store compacts, which removes some of its
// tables.
func awaitMerge(t *testing.T, c *testkit.Cluster, n *testkit.Node) {
	t.Helper()
	store := filepath.Join(n.DataDir(), "store")
	before := tablesOf(t, store)
	for range 5 { // write enough for the first compaction
		for end := time.Now().Add(testkit.Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			now := tablesOf(t, store)
			if gone(before, now) > 0 {
				return
			}
			before = now
		}
	}
	t.Fatalf("%s never merges", n.ID())
}

// TestFlippedBitsDuringCompactionAreRepaired flips bits in the tables of one
// node while the load makes its store compact them, on a node that has its
// entities in memory and on a node that was just restarted. No answer may be
// wrong, no acknowledged command may be lost, and the node must repair itself.
func TestFlippedBitsDuringCompactionAreRepaired(t *testing.T) {
	testkit.Long(t, "flips")
	const n = 2000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 8, Flags: []string{"--scrub-bytes-per-second", "64MiB"}})
	c.Push("counter")
	caller := c.Client(client.Options{Timeout: testkit.Patience})
	if _, err := caller.Upload(t.Context(), ledgerModule(), true); err != nil {
		t.Fatal(err)
	}
	total := 0
	count := func() {
		t.Helper()
		total++
		if wrong := counters(t, caller, n, total); len(wrong) > 0 {
			t.Errorf("%d of %d answers are wrong, the first: %q", len(wrong), n, wrong[:min(len(wrong), 5)])
		}
	}
	count()
	for round, kind := range []string{"warm", "cold"} {
		node := c.Node(round + 1)
		if kind == "cold" {
			for i := range c.Nodes() {
				c.Restart(i)
				c.AwaitSpread()
			}
		}
		load := fill(t, caller, round)
		awaitMerge(t, c, node)
		before := tablesOf(t, filepath.Join(node.DataDir(), "store"))
		flipTables(t, node, rng, flipped)
		count()
		damageMet(t, node)
		load.end(t)
		renewed(t, c, node)
		load.check(t, caller)
		put, err := filepath.Glob(filepath.Join(node.DataDir(), "damaged-*", "store"))
		if err != nil || len(put) == 0 {
			t.Fatalf("nothing was put aside: %v", err)
		}
		t.Logf("%s: of %d tables %d were merged before the store was put aside", kind, len(before), gone(before, tablesOf(t, put[0])))
		count()
	}
	c.StopAll()
	for _, node := range c.Nodes() {
		node.MustVerify()
	}
}
