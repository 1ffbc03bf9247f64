package console

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestLongHistory checks that the console shows an entity with many events in
// pages, and that its state at any event equals the state that the API returns.
func TestLongHistory(t *testing.T) {
	showHistory(t, history)
}

// TestHistoryOf100000 is TestLongHistory with a hundred thousand events.
func TestHistoryOf100000(t *testing.T) {
	testkit.Long(t, "long")
	showHistory(t, 100_000)
}

func squeeze(text string) string { return strings.Join(strings.Fields(text), "") }

// state requests a state from a node as JSON. It retries while the node is
// unavailable.
func state(t *testing.T, node string, req *entityv1.GetStateRequest) string {
	t.Helper()
	for deadline := time.Now().Add(testkit.Patience); ; time.Sleep(20 * time.Millisecond) {
		res, err := entityv1connect.NewEntityServiceClient(http.DefaultClient, node).GetState(t.Context(), connect.NewRequest(req))
		if connect.CodeOf(err) == connect.CodeUnavailable && time.Now().Before(deadline) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := protojson.Marshal(res.Msg.GetJson())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// fill gives the counter "long" the given number of events.
func fill(t *testing.T, c *client.Client, events int) {
	t.Helper()
	s := c.Stream(client.StreamOptions{})
	var failed atomic.Pointer[error]
	for range events {
		err := s.Send(t.Context(), client.Command{EntityType: "counter", EntityID: "long", Name: "add", Data: []byte(`{"amount":1}`)}, func(_ client.Reply, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
}

func showHistory(t *testing.T, events int) {
	tab := browser(t)
	c := testkit.StartCluster(t, 1, testkit.ClusterOptions{Shards: 3})
	c.Push("counter")
	cl := c.Client(client.Options{})
	fill(t, cl, events)
	p := open(t, tab)
	node := c.Node(0).API()
	p.run("open", chromedp.Navigate(node+"/console/entities/counter/long"))
	p.await("the newest events are shown", fmt.Sprintf(`document.querySelector("table.events tbody button")?.textContent === "%d"`, events))
	if n := eval[int](p, `document.querySelectorAll("*").length`); n > 3_000 {
		t.Errorf("the page has %d elements", n)
	}
	p.run("earlier", chromedp.Click(chromedp.Search(`//button[text()="Earlier"]`)))
	p.await("the page before is shown", fmt.Sprintf(`document.querySelector("table.events tbody button")?.textContent === "%d"`, events-200))
	half := events / 2
	p.run("state at the middle", chromedp.Evaluate[chromedp.Void](`document.querySelector("input[name=at]").select()`), chromedp.SendKeys(chromedp.CSS("input[name=at]"), fmt.Sprint(half)+kb.Enter))
	p.await("the state there is shown", fmt.Sprintf(`document.querySelector("[data-state='%d']")`, half))
	at := uint64(half)
	want := state(t, node, &entityv1.GetStateRequest{EntityType: "counter", EntityId: "long", AtSequence: &at})
	if shown := eval[string](p, `document.querySelector("[data-state]").textContent`); squeeze(shown) != squeeze(want) {
		t.Errorf("at %d the page shows %s, the API says %s", half, shown, want)
	}
	p.shot("history")
	p.clean(node)
}
