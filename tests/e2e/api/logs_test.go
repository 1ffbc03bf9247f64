package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestGuestLogsAreFollowedOnAllNodes checks that any node returns the log lines
// that guests write on all nodes, earlier lines and new lines, and excludes the
// lines of other types and entities.
func TestGuestLogsAreFollowedOnAllNodes(t *testing.T) {
	const entities = 12
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	callers := c.Client(client.Options{Timeout: testkit.Patience})
	if _, err := callers.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/api/teller"), true); err != nil {
		t.Fatal(err)
	}
	say := func(id, word string) {
		t.Helper()
		if _, err := callers.Send(t.Context(), client.Command{EntityType: "teller", EntityID: id, Name: "say", Data: fmt.Appendf(nil, `{"word":%q}`, word)}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]bool{}
	for i := range entities {
		id := fmt.Sprint("e", i)
		say(id, "first")
		want[id+" warn logged first"], want[id+" info written first"] = true, true
	}
	if _, err := callers.Send(t.Context(), client.Command{EntityType: "teller", EntityID: "e0", Name: "break", Data: []byte(`{"word":"me"}`)}); err == nil {
		t.Fatal("a panic is no failure")
	}
	nodes := map[string]bool{}
	for _, n := range c.Nodes() {
		out, code := n.Run("logs", "teller", "--addr", n.API(), "-o", "json")
		if code != 0 {
			t.Fatalf("logs ends with %d: %s", code, out)
		}
		got, faults := map[string]bool{}, 0
		for text := range strings.Lines(out) {
			var l struct{ NodeID, EntityID, Level, Line, ModuleDigest string }
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if nodes[l.NodeID] = true; len(l.ModuleDigest) != 64 {
				t.Errorf("no module: %s", text)
			}
			if l.EntityID == "e0" && l.Level == "fault" && strings.Contains(l.Line, "broken by me") {
				faults++
			}
			got[l.EntityID+" "+l.Level+" "+l.Line] = true
		}
		for line := range want {
			if !got[line] {
				t.Errorf("%s does not tell %q", n.ID(), line)
			}
		}
		if faults == 0 {
			t.Errorf("%s does not tell how the call failed: %v", n.ID(), slices.Sorted(maps.Keys(got)))
		}
		if out, code := n.Run("logs", "teller", "e1", "--addr", n.API()); code != 0 || strings.Count(out, "  e1  ") < 2 || strings.Contains(out, "  e2  ") {
			t.Errorf("of one entity, %d: %s", code, out)
		}
		if out, code := n.Run("logs", "tailor", "--addr", n.API()); code != 1 || !strings.Contains(out, "not_found") {
			t.Errorf("of no type, %d: %s", code, out)
		}
	}
	if len(nodes) < 2 {
		t.Errorf("all lines are of %v", nodes)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*testkit.Patience)
	defer cancel()
	n := c.Node(1)
	stream, err := clusterOf(n).TailLogs(ctx, connect.NewRequest(&clusterv1.TailLogsRequest{EntityType: "teller", Follow: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	come := map[string]bool{}
	for i := range entities {
		id := fmt.Sprint("e", i)
		say(id, "later")
		come[id+" logged later"] = true
	}
	for len(come) > 0 && stream.Receive() {
		for _, l := range stream.Msg().GetLines() {
			delete(come, l.GetEntityId()+" "+l.GetText())
		}
	}
	if len(come) > 0 {
		t.Errorf("not told: %v: %v", slices.Sorted(maps.Keys(come)), stream.Err())
	}
}
