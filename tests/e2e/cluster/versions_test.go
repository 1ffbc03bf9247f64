package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

var (
	changes     = flag.Int("changes", 500, "how often another module is activated, or the one before put back")
	changesTime = flag.Duration("changes-time", 80*time.Second, "after which no more changes are made")
)

// changesPerKill is the number of changes between two kills.
const changesPerKill = 8

// TestModulesChangeUnderLoad is TestManyModulesChangeUnderLoad with fewer
// changes.
func TestModulesChangeUnderLoad(t *testing.T) {
	changeModules(t, changesPerKill+2, time.Hour)
}

// TestManyModulesChangeUnderLoad changes modules under load while nodes are
// killed and shadow modules run. It activates modules for all entities at once
// or, in steps that the cluster takes, first for a part of them. It aborts and
// rolls back some of these changes. No command may fail or be executed twice.
// No entity may return to an older module, except by a rollback or an abort.
func TestManyModulesChangeUnderLoad(t *testing.T) {
	testkit.Long(t, "long")
	changeModules(t, *changes, *changesTime)
}

// version returns a module of the type "versioned" whose commands emit an event
// named after the version.
func version(n int) guest.Module {
	name := fmt.Sprintf("v%d", n)
	event := append(binary.LittleEndian.AppendUint16(nil, uint16(len(name))), name...)
	frames := abi.AppendFrame(abi.AppendFrame(nil, abi.OutEvent, event), abi.OutReply, []byte("done"))
	return guest.Module{
		Bad: "versioned", MemoryPages: 16, Frames: frames, Handle: guest.Span(guest.FramesAt, uint32(len(frames))),
		Manifest: fmt.Sprintf(`{"abi":1,"name":"versioned","version":%q,"entityTypes":[{"name":"versioned","kind":"event-sourced","encoding":"bytes"}]}`, name),
	}
}

func changeModules(t *testing.T, most int, within time.Duration) {
	cluster := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: 3})
	c := cluster.Client(client.Options{Timeout: testkit.Patience})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	digests := make([]string, 6)
	for i := range digests {
		up, err := c.Upload(ctx, version(i).Build(), false)
		if err != nil {
			t.Fatal(err)
		}
		digests[i] = up.Digest
	}
	serve := func(n int) {
		t.Helper()
		persist(t, func() error { _, err := c.Activate(ctx, "versioned", digests[n]); return err })
	}
	serve(0)
	served := []int{0} // the active modules in order

	var sent [12]atomic.Uint64 // answered commands by entity
	var load sync.WaitGroup
	for i := range sent {
		load.Go(func() {
			for ctx.Err() == nil {
				_, err := c.Send(context.Background(), client.Command{EntityType: "versioned", EntityID: fmt.Sprint("e", i), Name: "go"})
				if err != nil {
					t.Errorf("a command of e%d failed: %v", i, err)
					return
				}
				sent[i].Add(1)
				select {
				case <-ctx.Done():
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	// beside runs a shadow module for a percentage of the commands; 0 ends it.
	beside := func(n, percent int) {
		t.Helper()
		value := ""
		if percent > 0 {
			value = fmt.Sprintf("%s %d%%", digests[n], percent)
		}
		persist(t, func() error { _, err := c.PutSetting(ctx, "entity.versioned.shadow", value); return err })
	}
	answered := func() {
		t.Helper()
		before := make([]uint64, len(sent))
		for i := range sent {
			before[i] = sent[i].Load()
		}
		cluster.Await("every entity is answered under what serves", func() bool {
			for i := range sent {
				if sent[i].Load() <= before[i] && !t.Failed() {
					return false
				}
			}
			return true
		})
	}
	made, down := 0, -1
	var back []int // the modules to which rollbacks return, the last one first
	for begun := time.Now(); made < most && time.Since(begun) < within && !t.Failed(); made++ {
		if made%changesPerKill == changesPerKill/2 {
			down = (made / changesPerKill) % nodes
			cluster.Kill(down)
		}
		now := served[len(served)-1]
		next := (now + 1) % len(digests)
		switch made % (changesPerKill - 1) {
		case 1, 4:
			beside((next+made%(len(digests)-1))%len(digests), 10+made%91)
		case 6:
			beside(0, 0)
		}
		switch {
		case made%changesPerKill == changesPerKill/2 && made%3 != 2:
			// The node that takes the steps may have been killed, so the call
			// is retried.
			persist(t, func() error {
				_, err := client.ActivateModule(ctx, c, &modulev1.ActivateModuleRequest{EntityType: "versioned", Digest: digests[next], Rollout: &modulev1.RolloutPlan{
					Share: 2000, Steps: []uint32{6000, 10_000}, Pause: durationpb.New(stepPause), Rules: "faults>0,rejections>+20%",
				}})
				return err
			})
			cluster.Await("the steps are taken", func() bool { return shareOf(ctx, c) == 10_000 })
			served, back = append(served, next), append(back, now)
		case made > 0 && made%4 < 2 && made%3 != 2:
			for _, share := range []uint32{3000, 6000} {
				persist(t, func() error {
					_, err := client.ActivateModule(ctx, c, &modulev1.ActivateModuleRequest{EntityType: "versioned", Digest: digests[next], Rollout: &modulev1.RolloutPlan{Share: share}})
					return err
				})
				answered()
			}
			action := modulev1.ChangeRolloutRequest_ACTION_PROMOTE
			if served = append(served, next); made%4 == 1 {
				action, served = modulev1.ChangeRolloutRequest_ACTION_ABORT, append(served, now)
			} else {
				back = append(back, now)
			}
			persist(t, func() error {
				_, err := client.ChangeRollout(ctx, c, &modulev1.ChangeRolloutRequest{EntityType: "versioned", Action: action})
				return err
			})
		case made%3 == 2:
			var res *modulev1.RollbackModuleResponse
			revision := servedUnder(t, c, "versioned")
			persist(t, func() (err error) {
				res, err = client.RollbackModule(ctx, c, &modulev1.RollbackModuleRequest{EntityType: "versioned", Revision: revision})
				return err
			})
			want := back[len(back)-1]
			if back = back[:len(back)-1]; res.GetDigest() != digests[want] {
				t.Fatalf("change %d goes back to %s, not to v%d", made, res.GetDigest(), want)
			}
			served = append(served, want)
		default:
			serve(next)
			back, served = append(back, now), append(served, next)
		}
		answered()
		if down >= 0 && made%changesPerKill == changesPerKill-1 {
			cluster.Node(down).Start()
			down = -1
		}
	}
	beside((served[len(served)-1]+1)%len(digests), 100)
	var compared *modulev1.Shadow
	cluster.Await("another module decides too, and otherwise", func() bool {
		// Shadow modules skip entities with long histories, so this command uses a
		// new entity.
		if _, err := c.Send(ctx, client.Command{EntityType: "versioned", EntityID: "young", Name: "go"}); err != nil {
			t.Fatalf("a command of another entity failed: %v", err)
		}
		res, err := client.RolloutState(ctx, c, "versioned")
		compared = res.GetShadow()
		return err == nil && compared.GetCompared() > 0 || t.Failed()
	})
	if compared.GetDiffering() != compared.GetCompared() {
		t.Errorf("each version emits an event of its own, but these were compared: %v", compared)
	}
	cancel()
	load.Wait()
	if down >= 0 {
		cluster.Node(down).Start()
	}
	events := 0
	for i := range sent {
		events += checkVersions(t, c, fmt.Sprint("e", i), served, sent[i].Load())
	}
	t.Logf("%d changes, %d events, each once; compared at last: %v", made, events, compared)
}

// checkVersions checks that the modules that an entity ran under are a
// subsequence of the active modules, in order, and that each command has one
// event.
func checkVersions(t *testing.T, c *client.Client, id string, served []int, want uint64) (events int) {
	t.Helper()
	at := 0
	for e, err := range c.ReadEvents(context.Background(), client.EventRange{EntityType: "versioned", EntityID: id}) {
		if err != nil {
			t.Fatal(err)
		}
		for events++; at < len(served) && e.Type != fmt.Sprintf("v%d", served[at]); {
			at++
		}
		if at == len(served) {
			t.Fatalf("%s has the event %s at %d out of turn; served have %v", id, e.Type, e.Sequence, served)
		}
	}
	if uint64(events) != want {
		t.Errorf("%s has %d events of %d commands", id, events, want)
	}
	return events
}

// persist retries an idempotent operation until it succeeds, because nodes may
// be down.
func persist(t *testing.T, do func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(testkit.Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = do(); err == nil {
			return
		}
		var refused *client.Error
		if errors.As(err, &refused) && refused.Reason == "VERIFY_FAILED" {
			break
		}
	}
	t.Fatal(err)
}

// servedUnder returns the current revision of a type's activation, according to
// the history.
func servedUnder(t *testing.T, c *client.Client, entityType string) (revision uint64) {
	t.Helper()
	persist(t, func() error {
		changes, err := client.ModuleHistory(context.Background(), c, entityType)
		if err == nil {
			revision = changes[0].GetRevision()
		}
		return err
	})
	return revision
}
