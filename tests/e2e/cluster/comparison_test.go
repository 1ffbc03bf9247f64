package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestComparisonSurvivesLeaderChange kills the leader of the metadata shard, or
// the leader of a shard of the type, while a module is compared with the
// snapshots that remain of truncated histories. A module that loses the states
// of these histories must never become active. A module that keeps the states
// must become active in the end, without another call if the first call was
// answered. Commands wait while a comparison write-pauses their shard, and must
// be executed afterwards.
func TestComparisonSurvivesLeaderChange(t *testing.T) {
	testkit.Long(t, "long")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	cluster := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: 3})
	c := cluster.Client(client.Options{Timeout: testkit.Patience})
	upload := func(name string, activate bool) string {
		t.Helper()
		up, err := c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/entities/ledgers/"+name), activate)
		if err != nil {
			t.Fatal(err)
		}
		return up.Digest
	}
	before, renamed, slow := upload("before", true), upload("renamed", false), upload("slow", false)

	const ledgers = 6
	var total int64
	add := func(times int) {
		t.Helper()
		for i := range ledgers {
			for range times {
				ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
				_, err := c.Send(ctx, client.Command{EntityType: "ledger", EntityID: fmt.Sprint("l", i), Name: "add", Data: []byte(`{"amount":1}`)})
				cancel()
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		total += int64(times)
	}
	whole := func() {
		t.Helper()
		for i := range ledgers {
			var got int64
			r, err := c.Query(t.Context(), client.Query{EntityType: "ledger", EntityID: fmt.Sprint("l", i), Name: "total"})
			if err == nil {
				err = json.Unmarshal(r.Data, &got)
			}
			if err != nil || got != total {
				t.Fatalf("ledger %d has %d, want %d: %v", i, got, total, err)
			}
		}
	}
	add(45)
	cluster.Await("the first events of a ledger are gone", func() bool {
		for _, err := range c.ReadEvents(t.Context(), client.EventRange{EntityType: "ledger", EntityID: "l0"}) {
			return err != nil && strings.Contains(err.Error(), "before sequence ")
		}
		return false
	})

	for round := range 4 {
		for _, digest := range []string{renamed, slow} {
			victim := cluster.Leader(uint32(round % 2 * (1 + round/2))) // leader of the metadata shard, and of each data shard in turn
			if victim < 0 {
				t.Fatal("a shard has no leader")
			}
			asked, err := client.New([]string{cluster.Node((victim + 1) % nodes).API()}, client.Options{Timeout: testkit.Patience})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			answered := false
			go func() {
				res, err := client.ActivateModule(t.Context(), asked, &modulev1.ActivateModuleRequest{EntityType: "ledger", Digest: digest})
				if answered = err == nil; res.GetState() == modulev1.Rollout_STATE_VERIFYING {
					_, err = client.AwaitActivation(t.Context(), asked, "ledger", digest)
				}
				ended <- err
			}()
			time.Sleep(time.Duration(rnd.IntN(800)) * time.Millisecond)
			cluster.Kill(victim)
			add(1)
			err = <-ended
			asked.Close()
			if refused := client.CodeOf(err); digest == renamed && err == nil || digest == slow && err != nil && (answered || !slices.Contains([]connect.Code{connect.CodeUnavailable, connect.CodeDeadlineExceeded}, refused)) {
				t.Errorf("round %d: the activation of %.8s ends with %v", round, digest, err)
			}
			t.Logf("round %d, %.8s: %v", round, digest, err)
			cluster.Node(victim).Start()
			cluster.AwaitSpread()
			add(1)
			whole()
			if digest == renamed {
				continue
			}
			persist(t, func() error {
				_, err := c.Activate(t.Context(), "ledger", slow)
				return err
			})
			whole()
			persist(t, func() error {
				_, err := c.Activate(t.Context(), "ledger", before)
				return err
			})
		}
	}
	changes, err := client.ModuleHistory(t.Context(), c, "ledger")
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		if change.GetDigest() == renamed {
			t.Errorf("a module that loses the states served: %v", change)
		}
	}
}
