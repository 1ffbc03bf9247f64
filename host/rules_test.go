package host_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// TestRolloutRulesSumAllNodes: faults that break a rule of a rollout are summed
// over all nodes, although no single node has enough of them.
func TestRolloutRulesSumAllNodes(t *testing.T) {
	const entities, each = 12, 2
	nodes := startCluster(t, 3, 3)
	c := dialNode(t, nodes[0])
	ctx := t.Context()
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(testkit.Patience); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("never: %s", what)
			}
		}
	}
	until("several nodes lead shards", func() bool {
		shards, err := c.Shards(ctx)
		leaders := map[string]bool{}
		for _, s := range shards {
			if s.GetShardId() != 0 {
				leaders[s.GetLeader()] = true
			}
		}
		return err == nil && len(leaders) == len(nodes) && !leaders[""]
	})
	kept := guest.Module{Bad: "kept"}
	if _, err := c.Upload(ctx, kept.Build(), true); err != nil {
		t.Fatal(err)
	}
	kept.Frames = abi.AppendReject(nil, "no", "not today")
	kept.Handle = guest.Span(guest.FramesAt, uint32(len(kept.Frames)))
	up, err := c.Upload(ctx, kept.Build(), false)
	if err != nil {
		t.Fatal(err)
	}
	rule := fmt.Sprintf("rejections>%d", entities*each-1)
	if _, err := client.ActivateModule(ctx, c, &modulev1.ActivateModuleRequest{EntityType: "kept", Digest: up.Digest, Rollout: &modulev1.RolloutPlan{Prefix: "e", Rules: rule}}); err != nil {
		t.Fatal(err)
	}
	for i := range entities * each {
		var rejected *client.RejectedError
		if _, err := c.Send(ctx, client.Command{EntityType: "kept", EntityID: fmt.Sprint("e", i%entities), Name: "go"}); !errors.As(err, &rejected) {
			t.Fatalf("command %d: %v", i, err)
		}
	}
	until("the rule is broken", func() bool {
		_, err := client.Rollout(ctx, c, "kept")
		return client.CodeOf(err) == connect.CodeNotFound
	})
	changes, err := client.ModuleHistory(ctx, c, "kept")
	if err != nil || changes[0].GetKind() != modulev1.ActivationChange_KIND_ABORT || changes[0].GetChangedBy() != "rule:"+rule {
		t.Errorf("the last change is %v: %v", changes, err)
	}
}
