package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// flipped is the number of bits to flip.
const flipped = 1000

// flipTables flips bits in the tables of a node's store, at most one per
// position. It skips tables that a compaction has removed or not finished.
func flipTables(t *testing.T, n *testkit.Node, rng *rand.Rand, bits int) {
	t.Helper()
	for bits > 0 {
		tables, err := filepath.Glob(filepath.Join(n.DataDir(), "store", "*.sst"))
		if err != nil || len(tables) == 0 {
			t.Fatalf("%s has no tables: %v", n.ID(), err)
		}
		f, err := os.OpenFile(tables[rng.IntN(len(tables))], os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if size := info.Size(); size > 0 {
			at := rng.Int64N(size)
			if _, err := f.ReadAt(b, at); err == nil {
				b[0] ^= 1 << rng.IntN(8)
				if _, err := f.WriteAt(b, at); err != nil {
					t.Fatal(err)
				}
				bits--
			} else if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
		}
		f.Close()
	}
}

// counters sends each counter a command and returns the counters whose total is
// wrong. It resends a command that was rejected because of damaged data,
// because that command has no effect.
func counters(t *testing.T, c *client.Client, n, want int) (wrong []string) {
	t.Helper()
	var mu sync.Mutex
	var refused atomic.Int64
	var callers sync.WaitGroup
	for w := range 16 {
		callers.Go(func() {
			for i := w; i < n; i += 16 {
				id := fmt.Sprint("c", i)
				command := client.Command{EntityType: "counter", EntityID: id, Name: "add", Data: []byte(`{"amount":1}`), ID: fmt.Sprint(id, "-", want)}
				reply, err := c.Send(t.Context(), command)
				for refusedAsDamaged(err) {
					refused.Add(1)
					time.Sleep(100 * time.Millisecond)
					reply, err = c.Send(t.Context(), command)
				}
				var got struct{ Total int }
				if err == nil {
					err = json.Unmarshal(reply.Data, &got)
				}
				if err != nil || got.Total != want || int(reply.Sequence) != want {
					mu.Lock()
					wrong = append(wrong, fmt.Sprintf("%s: %s at %d, %v", id, reply.Data, reply.Sequence, err))
					mu.Unlock()
				}
			}
		})
	}
	callers.Wait()
	t.Logf("%d commands, %d refused since what is stored is damaged", n, refused.Load())
	slices.Sort(wrong)
	return wrong
}

// refusedAsDamaged reports whether the last attempt at a command was rejected
// because of damaged data. If an earlier attempt has an unknown outcome,
// resending the command is safe because of its ID.
func refusedAsDamaged(err error) bool {
	if err == nil {
		return false
	}
	code := client.CodeOf(err)
	return code == connect.CodeDataLoss || code == connect.CodeUnknown && strings.Contains(err.Error(), connect.CodeDataLoss.String())
}

// aside reports whether a node has moved damaged data aside.
func aside(t *testing.T, n *testkit.Node) bool {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(n.DataDir(), "damaged-*"))
	if err != nil {
		t.Error(err)
	}
	return len(found) > 0 && !strings.HasSuffix(found[0], ".moving")
}

// scrubPass is the time between the starts of two scrubs of all tables. If a
// bit is flipped after the current scrub has read it, the next scrub finds it,
// even in a row that is never read.
const scrubPass = time.Minute

// damageMet waits until a node has found its damage. Then either its process
// has ended, for example because of a compaction, or the node has moved its
// data aside.
func damageMet(t *testing.T, n *testkit.Node) {
	t.Helper()
	for deadline := time.Now().Add(scrubPass + testkit.Patience); n.Running() && !aside(t, n); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not see that its tables are damaged", n.ID())
		}
	}
}

// killAllowed watches a node and kills it when the other nodes have permitted
// it to move its data aside. It usually kills the node before the data is
// moved, because the node stops gracefully first. wait returns when the node
// was killed, or has found its damage in a different way.
func killAllowed(t *testing.T, n *testkit.Node) (wait func()) {
	t.Helper()
	var watching sync.WaitGroup
	watching.Go(func() {
		for deadline := time.Now().Add(scrubPass + 2*testkit.Patience); time.Now().Before(deadline) && n.Running() && !aside(t, n); time.Sleep(time.Millisecond) {
			if strings.Contains(n.Log(), "moving the node's damaged data aside") {
				n.Kill()
				t.Logf("%s was killed when it might put its data aside; it had: %v", n.ID(), aside(t, n))
				return
			}
		}
	})
	return watching.Wait
}

// renewed waits until a node has moved its data aside and serves again. If the
// process has ended, renewed starts it again, as a process manager would.
func renewed(t *testing.T, c *testkit.Cluster, n *testkit.Node) {
	t.Helper()
	damageMet(t, n)
	c.Await(n.ID()+" is whole again", func() bool {
		if !n.Running() {
			t.Logf("%s ended, the last of its log:\n%s", n.ID(), lastLines(n.Log(), 12))
			if err := n.Launch(); err != nil {
				t.Fatal(err)
			}
		}
		return aside(t, n) && ready(n)
	})
	c.AwaitSpread()
}

// lastLines returns the last n lines of a log.
func lastLines(log string, n int) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func ready(n *testkit.Node) bool {
	res, err := http.Get(n.API() + "/readyz")
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// TestFlippedBitsAreRepaired flips bits in the tables of a running node. No
// answer may be wrong and no acknowledged command may be lost. The node must
// move its store aside and repair itself, also if it is killed in between. Then
// it flips bits in the tables of another node while that node is stopped; its
// next start must repair it in the same way.
func TestFlippedBitsAreRepaired(t *testing.T) {
	testkit.Long(t, "long")
	if testing.Short() {
		t.Skip("takes a cluster of processes through several starts")
	}
	const n = 2000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 8, Flags: []string{"--scrub-bytes-per-second", "64MiB"}})
	c.Push("counter")
	caller := c.Client(client.Options{Timeout: testkit.Patience})
	if wrong := counters(t, caller, n, 1); len(wrong) > 0 {
		t.Fatalf("before any fault: %q", wrong)
	}
	for i := range c.Nodes() { // flush the memtables into tables
		c.Restart(i)
		c.AwaitSpread()
	}
	killed := killAllowed(t, c.Node(1))
	flipTables(t, c.Node(1), rng, flipped)
	if wrong := counters(t, caller, n, 2); len(wrong) > 0 {
		t.Errorf("%d of %d answers are wrong, the first: %q", len(wrong), n, wrong[:min(len(wrong), 5)])
	}
	killed()
	renewed(t, c, c.Node(1))

	c.Stop(2)
	flipTables(t, c.Node(2), rng, flipped)
	if wrong := counters(t, caller, n, 3); len(wrong) > 0 {
		t.Errorf("%d of %d answers are wrong, the first: %q", len(wrong), n, wrong[:min(len(wrong), 5)])
	}
	if err := c.Node(2).Launch(); err != nil {
		t.Fatal(err)
	}
	renewed(t, c, c.Node(2))
	if wrong := counters(t, caller, n, 4); len(wrong) > 0 {
		t.Errorf("%d of %d answers are wrong, the first: %q", len(wrong), n, wrong[:min(len(wrong), 5)])
	}
	c.StopAll()
	for _, node := range c.Nodes() {
		node.MustVerify()
	}
}
