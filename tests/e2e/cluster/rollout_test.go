package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// stepPause is the pause between steps of a rollout, by the clocks of the
// nodes.
const stepPause = time.Second

// TestRolloutStepsContinueOnNewLeader twice kills the node that takes the steps
// of a rollout. Another node must take the remaining steps, each once, in
// order, and no step before its pause is over.
func TestRolloutStepsContinueOnNewLeader(t *testing.T) {
	cluster := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: 3})
	c := cluster.Client(client.Options{Timeout: testkit.Patience})
	ctx := t.Context()
	var digests []string
	for n := range 2 {
		up, err := c.Upload(ctx, version(n).Build(), n == 0)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, up.Digest)
	}
	var sent [12]uint64
	write := func() {
		for i := range sent {
			if _, err := c.Send(ctx, client.Command{EntityType: "versioned", EntityID: fmt.Sprint("e", i), Name: "go"}); err != nil {
				t.Fatal(err)
			}
			sent[i]++
		}
	}
	write()
	plan := &modulev1.RolloutPlan{Share: 1000, Steps: []uint32{2000, 4000, 6000, 8000, 10_000}, Pause: durationpb.New(stepPause)}
	persist(t, func() error {
		_, err := client.ActivateModule(ctx, c, &modulev1.ActivateModuleRequest{EntityType: "versioned", Digest: digests[1], Rollout: plan})
		return err
	})
	for _, share := range []uint32{2000, 6000} {
		cluster.Await(fmt.Sprintf("%d of 10,000 entities are served by the newer module", share), func() bool {
			write()
			return shareOf(ctx, c) >= share
		})
		at := cluster.Leader(0)
		if at < 0 {
			t.Fatal("nobody takes the steps")
		}
		cluster.Kill(at)
		write()
		cluster.Node(at).Start()
	}
	cluster.Await("the newer module serves all", func() bool {
		write()
		return shareOf(ctx, c) == 10_000
	})
	write()
	for i := range sent {
		checkVersions(t, c, fmt.Sprint("e", i), []int{0, 1}, sent[i])
	}
	var changes []*modulev1.ActivationChange
	persist(t, func() (err error) {
		changes, err = client.ModuleHistory(ctx, c, "versioned")
		return err
	})
	slices.Reverse(changes)
	wanted := append([]uint32{0, plan.Share}, plan.Steps...)
	wanted[len(wanted)-1] = 0 // the last step is an activation, which has no share
	var got []uint32
	for i, change := range changes {
		got = append(got, change.GetShare())
		if since := change.GetChangedAt().AsTime().Sub(changes[max(0, i-1)].GetChangedAt().AsTime()); i > 1 && since < stepPause {
			t.Errorf("change %d comes %v after the one before", i, since)
		}
	}
	if last := changes[len(changes)-1]; !slices.Equal(got, wanted) || last.GetKind() != modulev1.ActivationChange_KIND_PROMOTE || last.GetDigest() != digests[1] {
		t.Errorf("the shares were %d, want %d; at last: %v", got, wanted, last)
	}
}

// shareOf returns how many of 10,000 entities the newer module serves, or 0 if
// that is unknown.
func shareOf(ctx context.Context, c *client.Client) uint32 {
	r, err := client.Rollout(ctx, c, "versioned")
	switch {
	case client.CodeOf(err) == connect.CodeNotFound:
		return 10_000
	case err != nil:
		return 0
	case r == nil: // one module serves all entities, and a shadow module runs, too
		return 10_000
	}
	return r.GetShare()
}
