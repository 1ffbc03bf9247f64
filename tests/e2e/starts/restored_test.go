package starts

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// A directory is restored to its state 15 events ago, and 15 different events
// are written. A cursor after the lost events is rejected although the number
// of events is the same again, because otherwise the subscriber would silently
// skip events. A cursor from before the copy receives exactly the new events.
func TestCursorAfterRestoreIsRejected(t *testing.T) {
	t.Parallel()
	n := testkit.StartNode(t, testkit.NodeOptions{})
	n.Push("counter")
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	add := func(times int) {
		t.Helper()
		for i := range times {
			if _, err := n.Client(client.Options{}).Send(ctx, client.Command{EntityType: "counter", EntityID: fmt.Sprint("c", i), Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	read := func(from string, follow bool) (cursor string, events int, failed error) {
		for d, err := range n.Client(client.Options{}).Subscribe(ctx, client.Subscription{EntityType: "counter", Cursor: from, Follow: follow}) {
			if err != nil {
				return cursor, events, err
			}
			cursor = d.Cursor()
			events++
		}
		return cursor, events, nil
	}
	add(10)
	before, events, err := read("", false)
	if err != nil || events != 10 {
		t.Fatalf("%d events, %v", events, err)
	}
	n.Stop()
	copied := t.TempDir() + "/copy"
	if err := os.CopyFS(copied, os.DirFS(n.DataDir())); err != nil {
		t.Fatal(err)
	}
	n.Start()
	add(15)
	lost, events, err := read("", false)
	if err != nil || events != 25 {
		t.Fatalf("%d events, %v", events, err)
	}
	n.Stop()
	if err := os.RemoveAll(n.DataDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(n.DataDir(), os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
	n.Start()
	for _, others := range []string{"fewer", "as many", "more"} {
		add(map[string]int{"fewer": 3, "as many": 12, "more": 15}[others])
		for _, follow := range []bool{false, true} {
			if _, _, err := read(lost, follow); !client.HistoryLost(err) {
				t.Errorf("%s events instead of the lost ones, following %v: %v", others, follow, err)
			}
		}
	}
	view := client.Projection{
		Client: n.Client(client.Options{}), Subscription: client.Subscription{EntityType: "counter", Cursor: lost, Follow: true},
		Apply: func(context.Context, client.Batch) error { return nil },
	}
	if err := view.Run(ctx); !client.HistoryLost(err) {
		t.Errorf("a view: %v", err)
	}
	if out, code := n.Run("entity", "tail", "counter", "--cursor", lost, "--addr", n.API()); code == 0 || !strings.Contains(out, "history") {
		t.Errorf("the command line: exit %d, %s", code, out)
	}
	if _, events, err := read(before, false); err != nil || events != 30 {
		t.Errorf("from before the copy: %d events, %v", events, err)
	}
}
