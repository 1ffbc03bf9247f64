package entities

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/tests/support/testkit"
)

// TestPulledCompactedHistoryBeginsWithState checks that the exported history of an entity
// whose first events were truncated begins with its earliest stored state, and
// that the later events can be replayed from it without the node.
func TestPulledCompactedHistoryBeginsWithState(t *testing.T) {
	n := newNode(t)
	n.fill("trail", 0, 40)
	last := uint64(40 + n.fillUntilCut("trail", 40))
	run := func(code int, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), testkit.Program(t), args...).CombinedOutput()
		if got := 0; err != nil {
			exit, ok := err.(*exec.ExitError)
			if ok {
				got = exit.ExitCode()
			}
			if !ok || got != code {
				t.Fatalf("%q ends with %v: %s", args, err, out)
			}
		} else if code != 0 {
			t.Fatalf("%q does not fail: %s", args, out)
		}
		return string(out)
	}
	file := filepath.Join(t.TempDir(), "x")
	pull := func() string { return run(0, "pull", "trail", "x", "-o", file, "--addr", n.n.Addr()) }
	if out := pull(); !strings.Contains(out, "before which events were truncated") {
		t.Fatalf("nothing was cut: %s", out)
	}
	type stepped struct {
		Sequence uint64
		State    struct{ JSON struct{ Total int64 } }
	}
	steps := func(args ...string) (lines []stepped) {
		t.Helper()
		for text := range strings.Lines(run(0, append([]string{"step", file, "-o", "json"}, args...)...)) {
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
	lines := steps()
	if len(lines) < 50 || uint64(len(lines)) >= last {
		t.Fatalf("of %d events %d are there", last, len(lines))
	}
	for i, l := range lines {
		at := last - uint64(len(lines)-1-i)
		s, err := n.fold("trail", at)
		if err != nil || l.Sequence != at || l.State.JSON.Total != s.Total {
			t.Fatalf("event %d: %+v, want %d: %v", at, l, s.Total, err)
		}
	}
	if out := run(1, "step", file, "--at", "1"); !strings.Contains(out, "begins with the state at event") {
		t.Errorf("up to an event that was cut: %s", out)
	}
	if l := steps("--command", "add", "--data", `{"amount":5}`); len(l) != len(lines)+1 || l[len(lines)].State.JSON.Total != lines[len(lines)-1].State.JSON.Total+5 {
		t.Errorf("a command on top: %+v", l[len(l)-1])
	}
	before := lines[len(lines)-1].State.JSON.Total
	n.command("trail", "x", "add", `{"amount":0}`)
	if out := pull(); !strings.Contains(out, fmt.Sprintf("%d events", len(lines)+1)) {
		t.Errorf("one event more: %s", out)
	}
	if l := steps(); len(l) != len(lines)+1 || l[len(lines)].State.JSON.Total != before {
		t.Errorf("an event that adds nothing: %+v", l[len(l)-1])
	}
}
