package disk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// rotKeys is the number of counters. Their rows do not fit into the store's
// block cache.
const rotKeys = 20_000

// TestFlippedBitsOnSingleNodeAreRejected flips bits in the tables of a running node, in
// rows of resident and of non-resident entities. No answer may be wrong, the node must
// report the damage, and its next start must name the file.
func TestFlippedBitsOnSingleNodeAreRejected(t *testing.T) {
	testkit.Long(t, "long")
	n := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--scrub-bytes-per-second", "64MiB"}})
	n.Push("counter")
	for key, r := range addAll(t, n, 0, rotKeys) {
		if r.err != nil || r.Sequence != 1 {
			t.Fatalf("counter %d: %+v", key, r)
		}
	}
	n.Stop() // flushes the memtables into tables
	n.Start()
	warm := addAll(t, n, 0, rotKeys/4)
	flips(t, filepath.Join(n.DataDir(), "store"), 150)
	right, refused := 0, 0
	for key, r := range addAll(t, n, 0, rotKeys) {
		want := uint64(2)
		if key < rotKeys/4 {
			want = 3
		}
		switch {
		case r.err != nil:
			refused++
		case uint64(r.Sequence) != want || string(r.Data) != fmt.Sprintf(`{"total":%d}`, want*uint64(key+1)):
			t.Errorf("counter %d has %s at %d, want %d events", key, r.Data, r.Sequence, want)
		default:
			right++
		}
	}
	t.Logf("%d warm, then %d right and %d refused", len(warm), right, refused)
	damaged := func() bool {
		res, err := http.Get(n.API() + "/readyz")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		return res.StatusCode != http.StatusOK
	}
	for began := time.Now(); n.Running() && !damaged(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			t.Fatal("the node does not see that it is damaged")
		}
	}
	n.Kill()
	if err := n.TryStart(); err == nil || !strings.Contains(n.Log(), ".sst") {
		t.Errorf("the next start: %v; its log names no table:\n%s", err, n.Log())
	}
}

type added struct {
	client.Reply
	err error
}

// addAll adds to each counter the counter's number, and returns the answers.
func addAll(t *testing.T, n *testkit.Node, from, to int) map[int]added {
	t.Helper()
	var mu sync.Mutex
	out := make(map[int]added, to-from)
	c := n.Client(client.Options{Timeout: 10 * time.Second})
	s := c.Stream(client.StreamOptions{ResendFor: time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	for key := from; key < to; key++ {
		done := func(r client.Reply, err error) {
			mu.Lock()
			defer mu.Unlock()
			r.Data = slices.Clone(r.Data) // the buffer is reused
			out[key] = added{r, err}
		}
		err := s.Send(ctx, client.Command{
			EntityType: "counter", EntityID: fmt.Sprintf("c%d", key), Name: "add", Data: fmt.Appendf(nil, `{"amount":%d}`, key+1),
		}, done)
		if err != nil {
			done(client.Reply{}, err)
		}
	}
	_ = s.Close(ctx) // failures are recorded in out
	mu.Lock()
	defer mu.Unlock()
	return out
}

// flips flips bits in tables of a directory in use, except in the last third of
// each table, which holds the indexes.
func flips(t *testing.T, dir string, n int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	for done := 0; done < n; {
		names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
		if err != nil || len(names) == 0 {
			t.Fatal("no tables", err)
		}
		f, err := os.OpenFile(names[rng.IntN(len(names))], os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed by a compaction
		}
		if err != nil {
			t.Fatal(err)
		}
		fi, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if size := fi.Size(); size > 1000 {
			at := rng.Int64N(size * 2 / 3)
			if _, err := f.ReadAt(b, at); err == nil {
				b[0] ^= 1 << rng.IntN(8)
				// The write must not extend the file, because a compaction may
				// truncate it concurrently.
				if _, err := f.WriteAt(b, at); err != nil {
					t.Fatal(err)
				}
				done++
			}
		}
		f.Close()
	}
}
