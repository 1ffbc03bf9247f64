package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// otherRows is a planted fault: a file makes a node's replica differ from the
// other replicas.
const otherRows = "e2e/cluster/planted/other-rows.txt"

// TestDisputedShardRejectsRequests checks that if two of three replicas differ
// and the third is down, so that neither of the two can be trusted, requests to
// the shard are rejected with the reason until the third replica is back. Then
// the wrong replica is replaced, and all acknowledged data is there.
func TestDisputedShardRejectsRequests(t *testing.T) {
	testkit.Long(t, "long")
	c := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: 1, Planted: []string{otherRows}})
	c.Push("counter")
	c.AwaitSpread()
	c.Kill(2)
	mark := filepath.Join(c.Node(1).DataDir(), "other-rows-1")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	// Replica checksums are taken a thousand entries apart.
	caller := c.Client(client.Options{Timeout: testkit.Patience})
	var acknowledged [8]atomic.Uint64
	load, end := context.WithCancel(t.Context())
	defer end()
	var callers sync.WaitGroup
	for i := range acknowledged {
		callers.Go(func() {
			for load.Err() == nil {
				_, err := caller.Send(load, client.Command{EntityType: "counter", EntityID: fmt.Sprint("d", i), Name: "add", Data: []byte(`{"amount":1}`)})
				var public *client.Error
				switch {
				case err == nil:
					acknowledged[i].Add(1)
				case load.Err() == nil && !(errors.As(err, &public) && client.CodeOf(err) == connect.CodeDataLoss):
					t.Errorf("a command: %v", err)
					return
				}
			}
		})
	}
	disputed := func(i int) bool {
		got := shownStopped(c, i)
		return strings.Contains(got, "n1 disputed") && strings.Contains(got, "n2 disputed")
	}
	// The load may be slow, as long as it makes progress.
	for last, at := uint64(0), time.Now(); !disputed(0) || !disputed(1); time.Sleep(20 * time.Millisecond) {
		sum := uint64(0)
		for i := range acknowledged {
			sum += acknowledged[i].Load()
		}
		if sum != last {
			last, at = sum, time.Now()
		} else if time.Since(at) > testkit.Patience {
			t.Fatalf("after %d commands n1 shows %q and n2 %q", sum, shownStopped(c, 0), shownStopped(c, 1))
		}
	}
	end()
	callers.Wait()

	_, err := caller.Send(t.Context(), client.Command{EntityType: "counter", EntityID: "d0", Name: "add", Data: []byte(`{"amount":1}`)})
	if client.CodeOf(err) != connect.CodeDataLoss {
		t.Errorf("a command of the disputed shard: %v", err)
	}
	for i := range 2 {
		n := c.Node(i)
		if status, text := readyz(t, n); status != 503 || !strings.Contains(text, "replicas differ") || !strings.Contains(text, "[1]") {
			t.Errorf("/readyz of %s: %d %s", n.ID(), status, text)
		}
		if out, code := n.Run("shard", "ls", "--addr", n.API()); code != 0 || !strings.Contains(out, "n1 (disputed)") || !strings.Contains(out, "n2 (disputed)") {
			t.Errorf("shard ls at %s: %d\n%s", n.ID(), code, out)
		}
	}

	if err := os.Remove(mark); err != nil { // from now on, n2's rows are correct
		t.Fatal(err)
	}
	if err := c.Node(2).Launch(); err != nil {
		t.Fatal(err)
	}
	c.Node(1).Until("the wrong replica is replaced", func() error {
		for i, n := range c.Nodes() {
			if status, text := readyz(t, n); status != 200 {
				return fmt.Errorf("%s: %d %s", n.ID(), status, text)
			}
			if got := shownStopped(c, i); got != "" {
				return fmt.Errorf("%s shows %q", n.ID(), got)
			}
		}
		if log := c.Node(1).Log(); !strings.Contains(log, "removed replicas") {
			return errors.New("no replica of n2 was removed")
		}
		return nil
	})
	if strings.Contains(c.Node(0).Log(), "removed replicas") || strings.Contains(c.Node(2).Log(), "removed replicas") {
		t.Error("a right replica was removed")
	}
	for i := range acknowledged {
		e, err := caller.Entity(t.Context(), "counter", fmt.Sprint("d", i))
		if want := acknowledged[i].Load(); err != nil || e.GetSequence() < want {
			t.Errorf("counter d%d is at %d, %v; %d commands were acknowledged", i, e.GetSequence(), err, want)
		}
	}
	c.StopAll()
	for _, n := range c.Nodes() {
		n.MustVerify()
	}
}
