package floods

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

var endlessFor = flag.Duration("endless", 2*time.Second, "how long endless loops are sent to a node")

const (
	spinners  = 8 // callers of the endless commands
	neighbour = 4 // callers of a different type
	loaders   = 8 // goroutines that an executor keeps after it has used them once
)

// spin returns a guest whose first command works. After that, also when the
// entity is loaded again, every command is an endless loop.
func spin() []byte {
	flagAt := []byte{0x41, 0x80, 0x20} // i32.const 4096
	set := slices.Concat(flagAt, []byte{0x41, 0x01, 0x3a, 0x00, 0x00})
	loop := []byte{0x03, 0x40, 0x0c, 0x00, 0x0b, 0x00}
	frames := guest.Happened()
	return guest.Module{
		Bad: "spin", Frames: frames,
		Handle: slices.Concat(flagAt, []byte{0x2d, 0x00, 0x00, 0x04, 0x7e}, loop,
			[]byte{0x05}, set, guest.Span(guest.FramesAt, uint32(len(frames))), []byte{0x0b}),
		Apply: slices.Concat(set, []byte{0x41, 0x00}),
	}.Build()
}

// TestEndlessCommandsAreQuarantined checks that endless commands fail and their entities are
// quarantined, that all commands to another type succeed meanwhile, and that
// the node keeps none of their resources.
func TestEndlessCommandsAreQuarantined(t *testing.T) {
	testkit.Long(t, "long")
	node := testkit.StartNode(t, testkit.NodeOptions{})
	c := node.Client(client.Options{Timeout: testkit.Patience})
	for _, wasm := range [][]byte{spin(), guest.Module{Bad: "calm"}.Build()} {
		if _, err := c.Upload(t.Context(), wasm, true); err != nil {
			t.Fatal(err)
		}
	}
	for _, entityType := range []string{"calm", "spin"} {
		reply, err := c.Send(t.Context(), client.Command{EntityType: entityType, EntityID: "0", Name: "x"})
		if err != nil || reply.Fuel == 0 || reply.Fuel > 1_000_000 {
			t.Fatalf("the first command of %s: %+v, %v", entityType, reply, err)
		}
	}
	before := node.Metrics()
	failed, took := attack(t, node, c)
	if !node.Running() {
		t.Fatal("the node has ended")
	}
	slices.Sort(took)
	t.Logf("%d endless commands failed; %d others took p50 %v, p99 %v, at most %v", failed, len(took),
		took[len(took)/2], took[len(took)*99/100], took[len(took)-1])

	checkParked(t, node, c)
	stay(t, node, c)
	// A resident entity keeps its instance until it is evicted, so the number
	// of instances depends on chance. Therefore all entities are evicted.
	for _, entityType := range []string{"calm", "spin"} {
		if _, err := c.PutSetting(t.Context(), "entity."+entityType+".passivate-after", "100ms"); err != nil {
			t.Fatal(err)
		}
	}
	node.Until("the instances are closed", func() error {
		return atMost(node.Metrics(), 0, "hostd_engine_instances", `hostd_type_entities_resident{entity_type="calm"}`, `hostd_type_entities_resident{entity_type="spin"}`)
	})
	most := before["go_goroutines"] + float64(spinners+neighbour+loaders*max(1, runtime.NumCPU()-1))
	node.Until("the goroutines have ended", func() error { return atMost(node.Metrics(), most, "go_goroutines") })
	after := node.Metrics()
	if fuel := after[`hostd_type_fuel_total{entity_type="spin"}`]; fuel < 1e8 {
		t.Errorf("endless loops have cost %v units", fuel)
	}
	if after[`hostd_guest_faults_by_kind_total{kind="fuel spent"}`] == 0 {
		t.Error("no fault of the kind fuel spent is counted")
	}
	node.Stop()
	node.MustVerify()
}

// stay leaves entities in memory whose next command would not end, two of them
// on one executor. That is possible because an entity that faulted twice and
// then worked has its own instance.
func stay(t *testing.T, node *testkit.Node, c *client.Client) {
	works := func(id string) bool {
		_, err := c.Send(t.Context(), client.Command{EntityType: "spin", EntityID: "stays-" + id, Name: "x"})
		var public *client.Error
		if err != nil && !errors.As(err, &public) {
			t.Fatalf("a command of %s: %v", id, err)
		}
		return err == nil
	}
	// The first command of an instance works.
	first := 0
	share := func() bool { first++; return works(fmt.Sprint("first-", first)) }
	for range 2 {
		for tries := 0; !share() && tries < 10; tries++ {
		}
		works("alone") // fails, unless the entity is on a different executor
	}
	for tries := 0; !share() && tries < 10; tries++ {
	}
	works("alone")
	now := node.Metrics()
	t.Logf("%v instances; %v entities in memory whose next command does not end", now["hostd_engine_instances"], now[`hostd_type_entities_resident{entity_type="spin"}`])
}

// atMost returns an error if one of the figures exceeds its maximum or is
// missing.
func atMost(figures map[string]float64, most float64, names ...string) error {
	for _, name := range names {
		if v, there := figures[name]; !there || v > most {
			return fmt.Errorf("%s is %v (there: %v), at most %v is right", name, v, there, most)
		}
	}
	return nil
}

// attack makes spinners send endless commands while neighbours use another
// type. It returns how many commands failed, and the latencies of the
// neighbours.
func attack(t *testing.T, node *testkit.Node, c *client.Client) (failed int64, took []time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), *endlessFor)
	defer cancel()
	other := node.Client(client.Options{Timeout: testkit.Patience})
	var all sync.WaitGroup
	var failures atomic.Int64
	for i := range spinners {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				// The first entity has already run its only working command;
				// the other entities never run a working command.
				_, err := other.Send(ctx, client.Command{EntityType: "spin", EntityID: fmt.Sprint(i % 2 * (n + 1)), Name: "x", ID: fmt.Sprintf("%d-%d", i, n)})
				var public *client.Error
				if err == nil && i%2 == 0 {
					t.Errorf("endless command %d of caller %d succeeded", n, i)
				} else if err != nil && ctx.Err() == nil && !errors.As(err, &public) {
					t.Errorf("an endless command ended with %v", err)
				}
				if err != nil {
					failures.Add(1)
				}
			}
		})
	}
	var mu sync.Mutex
	for i := range neighbour {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				began := time.Now()
				_, err := c.Send(t.Context(), client.Command{EntityType: "calm", EntityID: fmt.Sprint(i), Name: "x"})
				if err != nil {
					t.Errorf("command %d of neighbour %d: %v", n, i, err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if failures.Load() == 0 || len(took) == 0 {
		t.Fatalf("%d endless commands failed, %d others were answered", failures.Load(), len(took))
	}
	return failures.Load(), took
}

// checkParked checks that the quarantined entity is visible and that an
// operator can release it.
func checkParked(t *testing.T, node *testkit.Node, c *client.Client) {
	// The callers may have ended before the entity had three faults in a row.
	node.Await("the entity is quarantined", func() bool {
		e, err := c.Entity(t.Context(), "spin", "0")
		if err != nil {
			t.Fatal(err)
		}
		if e.GetStatus() == "quarantined" {
			if e.GetFaults() < 3 || !strings.Contains(e.GetLastError(), "fuel") || e.GetFuel() == 0 {
				t.Errorf("the quarantined entity is described as %v", e)
			}
			return true
		}
		_, _ = c.Send(t.Context(), client.Command{EntityType: "spin", EntityID: "0", Name: "x"})
		return false
	})
	if out, code := node.Run("entity", "ls", "spin", "--status", "quarantined", "-o", "json", "--addr", node.API()); code != 0 || !strings.Contains(out, `"entityId": "0"`) {
		t.Errorf("entity ls --status quarantined: %d\n%s", code, out)
	}
	if out, code := node.Run("entity", "clear", "spin", "0", "--addr", node.API()); code != 0 {
		t.Errorf("entity clear: %d\n%s", code, out)
	}
	api := entityv1connect.NewEntityServiceClient(http.DefaultClient, node.API())
	res, err := api.GetEntity(t.Context(), connect.NewRequest(&entityv1.GetEntityRequest{EntityType: "spin", EntityId: "0"}))
	if err != nil || res.Msg.GetStatus() != "active" || res.Msg.GetFaults() != 0 || res.Msg.GetLastError() != "" || res.Msg.GetSequence() != 1 {
		t.Errorf("after clear the entity is %v, %v", res, err)
	}
}
