package cluster

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// tooMuch is a payload on which the modules of failing trap.
var tooMuch = bytes.Repeat([]byte{'x'}, 8<<10)

// failing returns a version that traps if the input of a command is larger than
// 4 KiB.
func failing(n int) guest.Module {
	m := version(n)
	m.Handle = slices.Concat([]byte{0x20, 0x01, 0x41, 0x80, 0x20, 0x4b, 0x04, 0x40, 0x00, 0x0b}, m.Handle) // if length > 4096 { unreachable }
	return m
}

// TestRuleAbortContinuesOnNewLeader kills the node that aborts a rollout
// because of a rule, once before it has noticed the violation and once after
// the abort has begun. Another node must carry out the abort, exactly once. The
// older module must then serve all entities, and no command may be lost or
// executed twice.
func TestRuleAbortContinuesOnNewLeader(t *testing.T) {
	cluster := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: 3})
	c := cluster.Client(client.Options{Timeout: testkit.Patience})
	ctx := t.Context()
	if _, err := c.Upload(ctx, version(0).Build(), true); err != nil {
		t.Fatal(err)
	}
	newer, err := c.Upload(ctx, failing(1).Build(), false)
	if err != nil {
		t.Fatal(err)
	}
	const share = 5000
	var sent [12]uint64
	part := 0 // number of an entity that the newer module serves; all of its commands are meant to fail
	for (sharding.EntityID{Type: "versioned", ID: fmt.Sprint("e", part)}).Bucket() >= share {
		part++
	}
	write := func() {
		t.Helper()
		for i := range sent {
			if i == part {
				continue
			}
			if _, err := c.Send(ctx, client.Command{EntityType: "versioned", EntityID: fmt.Sprint("e", i), Name: "go"}); err != nil {
				t.Fatal(err)
			}
			sent[i]++
		}
	}
	fails := func() error {
		_, err := c.Send(ctx, client.Command{EntityType: "versioned", EntityID: fmt.Sprint("e", part), Name: "go", Data: tooMuch})
		if err == nil {
			sent[part]++
		}
		return err
	}
	write()
	served := []int{0}
	for _, begun := range []bool{false, true} {
		cluster.AwaitSpread()
		persist(t, func() error {
			_, err := client.ActivateModule(ctx, c, &modulev1.ActivateModuleRequest{EntityType: "versioned", Digest: newer.Digest, Rollout: &modulev1.RolloutPlan{Share: share, Rules: "faults>0"}})
			return err
		})
		write()
		at := cluster.Leader(0)
		if at < 0 {
			t.Fatal("nobody looks at the rules")
		}
		other := (at + 1) % nodes
		if begun {
			// The entities in the shards that the paused node leads cannot be checked,
			// so the abort takes a while.
			cluster.Pause(other)
		}
		here, err := client.New([]string{cluster.Node(at).API()}, client.Options{Timeout: testkit.Patience})
		if err != nil {
			t.Fatal(err)
		}
		if err := fails(); err == nil {
			t.Fatal("the newer module does not fail")
		}
		if begun {
			cluster.Await("the abort has begun", func() bool {
				r, err := client.Rollout(ctx, here, "versioned")
				return client.CodeOf(err) == connect.CodeNotFound || err == nil && r.GetState() != modulev1.Rollout_STATE_RUNNING
			})
		}
		cluster.Kill(at)
		here.Close()
		if begun {
			cluster.Continue(other)
		}
		cluster.Await("the older module serves all", func() bool {
			_ = fails() // the counters of a killed node are lost
			write()
			_, err := client.Rollout(ctx, c, "versioned")
			return client.CodeOf(err) == connect.CodeNotFound
		})
		cluster.Node(at).Start()
		write()
		if err := fails(); err != nil {
			t.Errorf("the older module does not serve the entity: %v", err)
		}
		served = append(served, 1, 0)
		for i := range sent {
			id := fmt.Sprint("e", i)
			checkVersions(t, c, id, served, sent[i])
			if last := newest(ctx, t, c, id); last != "v0" {
				t.Errorf("%s was written by %s at last", id, last)
			}
		}
	}
	var changes []*modulev1.ActivationChange
	persist(t, func() (err error) {
		changes, err = client.ModuleHistory(ctx, c, "versioned")
		return err
	})
	var got []string
	for _, change := range changes {
		got = append(got, change.GetKind().String()+" "+change.GetChangedBy())
	}
	abort, canary := "KIND_ABORT rule:faults>0", changes[1].GetKind().String()+" "+changes[1].GetChangedBy()
	if len(got) != 5 || !slices.Equal(got[:4], []string{abort, canary, abort, canary}) {
		t.Errorf("the history is %q", got)
	}
}

// newest returns the type of an entity's newest event.
func newest(ctx context.Context, t *testing.T, c *client.Client, id string) (last string) {
	t.Helper()
	for e, err := range c.ReadEvents(ctx, client.EventRange{EntityType: "versioned", EntityID: id}) {
		if err != nil {
			t.Fatal(err)
		}
		last = e.Type
	}
	return last
}
