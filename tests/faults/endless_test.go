package faults

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/tests/testkit"
	"github.com/hostd/hostd/tests/testkit/guest"
)

var endlessFor = flag.Duration("endless", 2*time.Second, "how long endless loops are sent to a node")

const (
	spinners  = 8 // callers whose commands never end
	neighbour = 4 // callers of another type
)

// spin is a guest whose first command works. From then on, and wherever the
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

// TestEndlessLoops: commands that never end fail and are held back, while the
// commands to another type all succeed; nothing of them stays in the node.
func TestEndlessLoops(t *testing.T) {
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
	before := measure(t, node)
	failed, took := attack(t, node, c)
	if !node.Running() {
		t.Fatal("the node has ended")
	}
	slices.Sort(took)
	t.Logf("%d endless commands failed; %d others took p50 %v, p99 %v, at most %v", failed, len(took),
		took[len(took)/2], took[len(took)*99/100], took[len(took)-1])

	checkParked(t, node, c)
	node.Await("the instances are closed", func() bool { return measure(t, node)["hostd_engine_instances"] <= 2 })
	node.Await("the goroutines have ended", func() bool {
		return measure(t, node)["go_goroutines"] <= before["go_goroutines"]+spinners+neighbour
	})
	after := measure(t, node)
	if fuel := after[`hostd_type_fuel_total{entity_type="spin"}`]; fuel < 1e8 {
		t.Errorf("endless loops have cost %v units", fuel)
	}
	if after[`hostd_guest_faults_by_kind_total{kind="fuel spent"}`] == 0 {
		t.Error("no fault of the kind fuel spent is counted")
	}
	node.Stop()
	node.MustVerify()
}

// attack has spinners send endless commands while neighbours use another type.
// It returns how many commands failed, and how long the neighbours' took.
func attack(t *testing.T, node *testkit.Node, c *client.Client) (failed int64, took []time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), *endlessFor)
	defer cancel()
	other := node.Client(client.Options{Timeout: testkit.Patience})
	var all sync.WaitGroup
	var failures atomic.Int64
	for i := range spinners {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				// The first entity has had its command; the others never have one that works.
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

// checkParked demands that the entity is seen to be held back, and that a
// person can let it go.
func checkParked(t *testing.T, node *testkit.Node, c *client.Client) {
	// Callers may have ended before it had its three faults in a row.
	node.Await("the entity is parked", func() bool {
		e, err := c.Entity(t.Context(), "spin", "0")
		if err != nil {
			t.Fatal(err)
		}
		if e.GetStatus() == "parked" {
			if e.GetFaults() < 3 || !strings.Contains(e.GetLastError(), "fuel") || e.GetFuel() == 0 {
				t.Errorf("the parked entity is described as %v", e)
			}
			return true
		}
		_, _ = c.Send(t.Context(), client.Command{EntityType: "spin", EntityID: "0", Name: "x"})
		return false
	})
	if out, code := node.Run("entity", "ls", "spin", "--status", "parked", "-o", "json", "--addr", node.API()); code != 0 || !strings.Contains(out, `"entityId": "0"`) {
		t.Errorf("entity ls --status parked: %d\n%s", code, out)
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

// measure reads the node's metrics by name and labels.
func measure(t *testing.T, node *testkit.Node) map[string]float64 {
	t.Helper()
	res, err := http.Get(node.API() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	out := make(map[string]float64)
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if v, err := strconv.ParseFloat(lines.Text()[at+1:], 64); err == nil && at > 0 {
			out[lines.Text()[:at]] = v
		}
	}
	return out
}
