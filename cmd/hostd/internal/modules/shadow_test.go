package modules

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
)

// TestInvalidShadowFlagsAreRejected checks that an invalid share, and flags for a serving
// module, are rejected before any call.
func TestInvalidShadowFlagsAreRejected(t *testing.T) {
	for args, want := range map[string]string{
		"": "", "--shadow=10%": "10%", "--shadow=0.01%": "0.01%", "--shadow=100%": "100%", "--shadow=off": "off", "--force": "",
		"--shadow=10": "!", "--shadow=0%": "!", "--shadow=101%": "!", "--shadow=": "!", "--shadow=x%": "!", "--shadow=10% --force": "!", "--shadow=off --force": "!",
	} {
		var s Shadow
		c := &cobra.Command{}
		s.Flags(c)
		c.Flags().Bool("force", false, "")
		if err := c.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if err := s.Parse(c, "force"); (err != nil) != (want == "!") || err == nil && s.Percent != want {
			t.Errorf("%s: %q, %v", args, s.Percent, err)
		}
	}
}

// TestShadowOutput checks the output with a rollout and without one, as text
// and as JSON.
func TestShadowOutput(t *testing.T) {
	s := &modulev1.Shadow{
		Digest: "ab", Share: 1000, Compared: 90, Differing: 3, Dropped: 7, Skipped: 2, Fuel: 1000, ShadowFuel: 1250, MissingNodeCount: 1, Note: "a note",
		Differences: []*modulev1.ShadowDifference{{Kind: "events", Commands: 2}, {Kind: "fault", Commands: 1}},
		Examples:    []*modulev1.ShadowExample{{EntityId: "e\x1b1", Sequence: 4, Command: "go", Kinds: []string{"events", "reply"}}, {EntityId: "e2", Command: "go", Kinds: []string{"fault"}, Fault: "trapped"}},
	}
	var text strings.Builder
	writeShadow(&text, s)
	for _, want := range []string{
		"10% of the commands are shadowed by ab: 90 compared, 3 differ in events 2, fault 1; 7 dropped, 2 skipped\n",
		"1000 by the active module, 1250 by the shadow module (+25.0%)\n", "1 node did not report what it compared", "a note\n", "events,reply", "trapped",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "\x1b") {
		t.Error("what a guest chose reaches the terminal")
	}
	for _, r := range []*modulev1.Rollout{nil, {EntityType: "order", State: modulev1.Rollout_STATE_RUNNING}} {
		raw, err := json.Marshal(viewRollout("order", &modulev1.GetRolloutResponse{Rollout: r, Shadow: s}))
		var got struct {
			EntityType, State string
			Shadow            struct {
				Digest   string
				Examples []struct{ EntityID string }
			}
		}
		if err == nil {
			err = json.Unmarshal(raw, &got)
		}
		if err != nil || got.EntityType != "order" || got.State != map[bool]string{true: "over", false: "running"}[r == nil] || got.Shadow.Digest != "ab" || len(got.Shadow.Examples) != 2 {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if raw, err := json.Marshal(viewRollout("order", nil)); err != nil || strings.Contains(string(raw), "shadow") {
		t.Errorf("%s: %v", raw, err)
	}
}
