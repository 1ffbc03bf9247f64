package api

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// stepped is an output line of 'hostd step -o json'.
type stepped struct {
	Sequence uint64
	Command  string
	Reply    struct{ JSON json.RawMessage }
	State    struct{ JSON json.RawMessage }
	Events   []struct{ EventType string }
	Sends    []struct{ EntityType, EntityID, Command string }
	Changes  []struct{ Path string }

	Rejection struct{ Code string }
}

// TestPulledHistoryIsReplayable checks that any node exports the history of an
// entity and its module in one file, which can be replayed without a node: step
// by step, up to any event, with a different module, and with additional
// commands that are not stored.
func TestPulledHistoryIsReplayable(t *testing.T) {
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	callers := c.Client(client.Options{Timeout: testkit.Patience})
	for _, dir := range []string{"tests/e2e/api/teller", "tests/e2e/entities/guest"} {
		if _, err := callers.Upload(t.Context(), testkit.BuildGuest(t, dir), true); err != nil {
			t.Fatal(err)
		}
	}
	for _, word := range []string{"one", "two", "three"} {
		if _, err := callers.Send(t.Context(), client.Command{EntityType: "teller", EntityID: "e", Name: "say", Data: fmt.Appendf(nil, `{"word":%q}`, word)}); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		if _, err := callers.Send(t.Context(), client.Command{EntityType: "trail", EntityID: "x", Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for i, n := range c.Nodes() {
		if out, code := n.Run("pull", "teller", "e", "-o", path(fmt.Sprint("teller", i)), "--addr", n.API()); code != 0 || !strings.Contains(out, "3 events") {
			t.Fatalf("pull ends with %d: %s", code, out)
		}
		if out, code := n.Run("pull", "teller", "nobody", "-o", path("nobody"), "--addr", n.API()); code != 1 || !strings.Contains(out, "no events") {
			t.Errorf("of nobody pull ends with %d: %s", code, out)
		}
		if out, code := n.Run("pull", "teller", "e", "-o", path("large"), "--max-bytes", "20", "--addr", n.API()); code != 1 || !strings.Contains(out, "--max-bytes") {
			t.Errorf("of too many bytes pull ends with %d: %s", code, out)
		}
	}
	n := c.Node(0)
	if out, code := n.Run("entity", "delete", "trail", "x", "--yes", "--addr", n.API()); code != 0 {
		t.Fatalf("delete ends with %d: %s", code, out)
	}
	if _, err := callers.Send(t.Context(), client.Command{EntityType: "trail", EntityID: "x", Name: "add", Data: []byte(`{"amount":7}`)}); err != nil {
		t.Fatal(err)
	}
	if out, code := n.Run("pull", "trail", "x", "-o", path("trail"), "--addr", n.API()); code != 0 {
		t.Fatalf("pull ends with %d: %s", code, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 4 {
		t.Errorf("files that are there: %v, %v", left, err)
	}
	c.StopAll()

	step := func(args ...string) (lines []stepped) {
		t.Helper()
		out, code := n.Run(append([]string{"step", "-o", "json"}, args...)...)
		if code != 0 {
			t.Fatalf("step %q ends with %d: %s", args, code, out)
		}
		for text := range strings.Lines(out) {
			if !strings.HasPrefix(text, "{") {
				continue // a log line
			}
			var l stepped
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			lines = append(lines, l)
		}
		return lines
	}
	for i := range c.Nodes() {
		lines := step(path(fmt.Sprint("teller", i)))
		if len(lines) != 3 || string(lines[2].State.JSON) != `{"words":["one","two","three"]}` || lines[2].Sequence != 3 || len(lines[2].Changes) != 1 || lines[2].Changes[0].Path != "/words/2" {
			t.Errorf("of node %d: %+v", i, lines)
		}
	}
	file := path("teller0")
	if lines := step(file, "--at", "2"); len(lines) != 2 || string(lines[1].State.JSON) != `{"words":["one","two"]}` {
		t.Errorf("up to the second: %+v", lines)
	}
	lines := step(file, "--command", "say", "--data", `{"word":"four","to":"other"}`, "--command", "say", "--data", `{"word":""}`, "--command", "say", "--data", `{"word":"five"}`)
	if len(lines) != 6 {
		t.Fatalf("with commands: %+v", lines)
	}
	if l := lines[3]; l.Command != "say" || string(l.Reply.JSON) != `{"words":4}` || len(l.Events) != 1 || len(l.Sends) != 1 || l.Sends[0].EntityID != "other" || string(l.State.JSON) != `{"words":["one","two","three","four"]}` {
		t.Errorf("the first command: %+v", l)
	}
	if l := lines[4]; l.Rejection.Code != "silent" || len(l.Events) != 0 || l.Sequence != 4 {
		t.Errorf("the second command: %+v", l)
	}
	if l := lines[5]; string(l.Reply.JSON) != `{"words":5}` || l.Sequence != 5 {
		t.Errorf("the third command: %+v", l)
	}
	if lines := step(file); len(lines) != 3 {
		t.Errorf("commands are kept: %+v", lines)
	}
	if out, code := n.Run("step", file); code != 0 || !strings.Contains(out, `/words/1: nothing -> "two"`) || !strings.Contains(out, "said") {
		t.Errorf("as text, %d: %s", code, out)
	}

	later := path("later.wasm")
	if err := os.WriteFile(later, testkit.BuildGuest(t, "tests/e2e/entities/later"), 0o600); err != nil {
		t.Fatal(err)
	}
	total := func(l stepped) (n int64) {
		var s struct{ Total int64 }
		if err := json.Unmarshal(l.State.JSON, &s); err != nil {
			t.Fatal(err)
		}
		return s.Total
	}
	own, other := step(path("trail")), step(path("trail"), "--module", later)
	if len(own) != 6 || len(other) != 6 || total(own[3]) != 4 || total(other[3]) != 8 || total(own[5]) != 7 || total(other[5]) != 14 {
		t.Errorf("by its module %+v, by another one %+v", own, other)
	}
	if out, code := n.Run("step", file, "--module", later); code != 1 || !strings.Contains(out, "teller") {
		t.Errorf("by a module without the type, %d: %s", code, out)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad := slices.Clone(whole)
	bad[len(bad)/2] ^= 1
	for name, b := range map[string][]byte{"flipped": bad, "short": whole[:len(whole)-40], "other": []byte("no file of this kind")} {
		if err := os.WriteFile(path(name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := n.Run("step", path(name)); code != 1 || !strings.Contains(out, "the file ") {
			t.Errorf("%s: step ends with %d: %s", name, code, out)
		}
	}
}
