package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestNewestStateDuringCompaction checks that a request for an entity's newest
// state succeeds and never returns an older state than before, however often
// the newest state is truncated while it is read.
func TestNewestStateDuringCompaction(t *testing.T) {
	testkit.Long(t, "long")
	const cuts = 12
	n := testkit.StartNode(t, testkit.NodeOptions{})
	c := n.Client(client.Options{Timeout: testkit.Patience})
	if _, err := c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/cluster/guest"), true); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() { stop(); all.Wait() }()
	of := dest{"brief", "0"}
	errs := make(chan error, 3)
	all.Go(func() {
		cmd := client.Command{EntityType: of.Type, EntityID: of.ID, Name: "act", Data: fmt.Appendf(nil, `{"more":120,"reply":%d}`, fatReply/4)}
		for ctx.Err() == nil {
			if _, err := c.Send(ctx, cmd); err != nil && ctx.Err() == nil {
				errs <- err
				return
			}
		}
	})
	read := [2]int{}
	for i := range read {
		all.Go(func() {
			api := entityv1connect.NewEntityServiceClient(http.DefaultClient, n.API())
			for last := int64(0); ctx.Err() == nil; read[i]++ {
				r, err := api.GetState(ctx, connect.NewRequest(&entityv1.GetStateRequest{EntityType: of.Type, EntityId: of.ID}))
				acts := int64(0)
				if err == nil {
					acts = int64(r.Msg.GetJson().GetStructValue().GetFields()["acts"].GetNumberValue())
				}
				if err == nil && acts < last {
					err = fmt.Errorf("%d acts where %d were", acts, last)
				}
				if err != nil && ctx.Err() == nil {
					errs <- err
					return
				}
				last = acts
			}
		})
	}
	n.Await("there are events", func() bool { e, err := c.Entity(ctx, of.Type, of.ID); return err == nil && e.GetSequence() > 0 })
	first, seen := uint64(0), 0
	for end := time.Now().Add(testkit.Patience); seen < cuts; time.Sleep(time.Millisecond) {
		select {
		case err := <-errs:
			t.Fatal(err)
		default:
		}
		for _, err := range c.ReadEvents(ctx, client.EventRange{EntityType: of.Type, EntityID: of.ID, From: 1}) {
			var cut *client.TruncatedError
			if errors.As(err, &cut) && cut.First > first {
				first, seen = cut.First, seen+1
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("events were cut %d times, up to %d", seen, first)
		}
	}
	stop()
	all.Wait()
	t.Logf("events cut %d times, up to %d; states read %v", seen, first, read)
	if read[0] == 0 || read[1] == 0 {
		t.Errorf("states read %v", read)
	}
}
