package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestRecordsAndPendingWorkAreEqualOnAllNodes checks that the commands of entities and their
// pending timers and messages are the same on every node and for every page
// size.
func TestRecordsAndPendingWorkAreEqualOnAllNodes(t *testing.T) {
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 4, Flags: []string{"--admin", "full"}})
	c.Push("cart")
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	if _, err := cl.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/messages/guest"), true); err != nil {
		t.Fatal(err)
	}
	t.Run("records", func(t *testing.T) { seeRecords(t, c, cl) })
	t.Run("timers", func(t *testing.T) { seeTimers(t, c, cl) })
	t.Run("sends", func(t *testing.T) { seeSends(t, c, cl) })
}

// seeTimers fills carts, each of which sets a timer.
func seeTimers(t *testing.T, c *testkit.Cluster, cl *client.Client) {
	for i := range 12 {
		if _, err := cl.Send(t.Context(), client.Command{EntityType: "cart", EntityID: fmt.Sprint("t", i), Name: "add", Data: []byte(`{"sku":"pear","price":45,"quantity":1}`)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		service := entityv1connect.NewEntityServiceClient(http.DefaultClient, c.Node(i).API())
		var all []string
		c.Await("the timers of all shards", func() bool {
			all = nil
			req := &entityv1.ListTimersRequest{EntityType: "cart", PageSize: uint32(2 + 3*i)}
			for last := (time.Time{}); ; {
				page, err := service.ListTimers(t.Context(), connect.NewRequest(req))
				if err != nil || page.Msg.GetShardsRead() != page.Msg.GetShardCount() || len(page.Msg.GetMissingNodes()) > 0 {
					return false
				}
				for _, timer := range page.Msg.GetTimers() {
					if due := timer.GetTimer().GetDue().AsTime(); due.Before(last) || timer.GetTimer().GetCommand() != "expire" || timer.GetTimer().GetName() != "abandon" {
						t.Fatalf("node %d: %v after %v", i, timer, last)
					} else {
						last = due
					}
					all = append(all, timer.GetEntityId())
				}
				if req.PageToken = page.Msg.GetNextPageToken(); req.PageToken == "" {
					return true
				}
			}
		})
		slices.Sort(all)
		if want := "t0 t1 t10 t11 t2 t3 t4 t5 t6 t7 t8 t9"; strings.Join(all, " ") != want {
			t.Errorf("node %d: timers of %v", i, all)
		}
	}
	if out, code := c.Node(0).Run("entity", "timers", "cart", "--limit", "3", "--addr", c.Node(0).Address()); code != 0 || strings.Count(out, "abandon") != 3 || !strings.Contains(out, "there are more") {
		t.Errorf("%d: %s", code, out)
	}
	if out, code := c.Node(0).Run("entity", "timers", "--within", "1h", "--addr", c.Node(0).Address()); code != 0 || strings.Contains(out, "abandon") {
		t.Errorf("within an hour: %d: %s", code, out)
	}
}

// seeSends makes entities send messages to a suspended type, so that the
// messages stay pending.
func seeSends(t *testing.T, c *testkit.Cluster, cl *client.Client) {
	if out, code := c.Node(0).Run("type", "suspend", "sink", "--addr", c.Node(0).Address()); code != 0 {
		t.Fatal(out)
	}
	for i := range 8 {
		if _, err := cl.Send(t.Context(), client.Command{EntityType: "source", EntityID: fmt.Sprint("s", i), Name: "to", Data: []byte(`{"type":"sink","id":"x","command":"take"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		service := entityv1connect.NewEntityServiceClient(http.DefaultClient, c.Node(i).API())
		list := func(entityType, id string) (all []string) {
			t.Helper()
			req := &entityv1.ListMessagesRequest{EntityType: entityType, EntityId: id, PageSize: 3}
			for {
				page, err := service.ListMessages(t.Context(), connect.NewRequest(req))
				if err != nil {
					t.Fatal(err)
				}
				for _, sent := range page.Msg.GetMessages() {
					if sent.GetEntityType() != "sink" || sent.GetEntityId() != "x" || sent.GetCommand() != "take" || sent.GetSentAt().AsTime().Before(time.Now().Add(-time.Hour)) {
						t.Errorf("node %d: %v", i, sent)
					}
					all = append(all, sent.GetSourceType()+"/"+sent.GetSourceId())
				}
				if req.PageToken = page.Msg.GetNextPageToken(); req.PageToken == "" {
					slices.Sort(all)
					return all
				}
			}
		}
		const want = "source/s0 source/s1 source/s2 source/s3 source/s4 source/s5 source/s6 source/s7"
		if got := list("source", ""); strings.Join(got, " ") != want {
			t.Errorf("node %d: %v", i, got)
		}
		if got := list("source", "s5"); strings.Join(got, " ") != "source/s5" {
			t.Errorf("node %d: %v", i, got)
		}
		if got := list("sink", ""); len(got) > 0 {
			t.Errorf("node %d: %v", i, got)
		}
	}
	if out, code := c.Node(0).Run("entity", "messages", "source", "s3", "--addr", c.Node(0).Address()); code != 0 || strings.Count(out, "source/s3") != 1 || !strings.Contains(out, "sink/x") {
		t.Errorf("%d: %s", code, out)
	}
}

func seeRecords(t *testing.T, c *testkit.Cluster, cl *client.Client) {
	for i, command := range []string{"add", "add", "remove", "checkout"} {
		data := map[string]string{"add": fmt.Sprintf(`{"sku":"pear%d","price":45,"quantity":1}`, i), "remove": `{"sku":"pear0"}`}[command]
		if _, err := cl.Send(t.Context(), client.Command{EntityType: "cart", EntityID: "a", Name: command, Data: []byte(data), ID: fmt.Sprint("c", i)}); err != nil {
			t.Fatal(err)
		}
	}
	var first string
	for i := range 3 {
		service := entityv1connect.NewEntityServiceClient(http.DefaultClient, c.Node(i).API())
		var all []*entityv1.ReadRecordsResponse_Record
		req := &entityv1.ReadRecordsRequest{EntityType: "cart", EntityId: "a", PageSize: uint32(1 + i)}
		for {
			page, err := service.ReadRecords(t.Context(), connect.NewRequest(req))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page.Msg.GetRecords()...)
			if req.PageToken = page.Msg.GetNextPageToken(); req.PageToken == "" {
				break
			}
		}
		text := ""
		for _, r := range all {
			text += fmt.Sprintf("%d %s by %s, %d events, %d sends, %d timers; ", r.GetSequence(), r.GetCommandId(), r.GetSource().GetKind(), len(r.GetEvents()), len(r.GetMessages()), len(r.GetTimers()))
			if r.GetFuel() == 0 || r.GetModuleDigest() == "" || r.GetJson() == nil || r.GetRecordedAt().AsTime().IsZero() {
				t.Errorf("node %d: %v", i, r)
			}
		}
		if first == "" {
			first = text
		}
		if want := "1 c0 by client, 1 events, 0 sends, 1 timers; 2 c1 by client, 1 events, 0 sends, 1 timers; 3 c2 by client, 1 events, 0 sends, 0 timers; 4 c3 by client, 1 events, 1 sends, 1 timers; "; text != want || text != first {
			t.Errorf("node %d: %s", i, text)
		}
	}
	out, code := c.Node(0).Run("entity", "records", "cart", "a", "--limit", "2", "--addr", c.Node(0).Address())
	if lines := strings.Split(out, "\n"); code != 0 || len(lines) < 3 || !strings.HasPrefix(lines[1], "4 ") || !strings.Contains(lines[1], "orders/a place") || !strings.Contains(lines[1], "-abandon") || !strings.Contains(out, "there are more") {
		t.Errorf("%d: %s", code, out)
	}
	out, code = c.Node(1).Run("entity", "records", "cart", "a", "--oldest-first", "--limit", "0", "-o", "json", "--addr", c.Node(1).Address())
	var v struct {
		Records []struct{ Sequence uint64 }
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || len(v.Records) != 4 || !slices.IsSortedFunc(v.Records, func(a, b struct{ Sequence uint64 }) int { return int(a.Sequence) - int(b.Sequence) }) {
		t.Errorf("%d, %v: %s", code, err, out)
	}
}
