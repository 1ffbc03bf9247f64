package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestRecordsAreTheSameAtEachNode: whichever node is asked, in pages of any
// size, the records of an entity say what its commands did.
func TestRecordsAreTheSameAtEachNode(t *testing.T) {
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 4})
	c.Push("cart")
	cl := c.Client(client.Options{Timeout: testkit.Patience})
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
			text += fmt.Sprintf("%d %s by %s, %d events, %d sends, %d timers; ", r.GetSequence(), r.GetCommandId(), r.GetSource().GetKind(), len(r.GetEvents()), len(r.GetSends()), len(r.GetTimers()))
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
