package entities

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// trapping and rejecting return modules of the type note whose commands only
// trap or are only rejected.
func trapping(m guest.Module) guest.Module {
	m.Handle = []byte{0} // unreachable
	return m
}

func rejecting(m guest.Module) guest.Module {
	m.Frames = abi.AppendReject(nil, "no", "not today")
	m.Handle = guest.Span(guest.FramesAt, uint32(len(m.Frames)))
	return m
}

// newRules starts a rollout in which the newer module serves the notes with the
// prefix "new" as long as the rules are not violated.
func newRules(t *testing.T, newer guest.Module, plan *modulev1.RolloutPlan) (c *canaries, log *lines) {
	log = &lines{}
	c = &canaries{node: &node{t: t, dir: t.TempDir(), module: "tests/e2e/entities/guest", log: log}}
	c.open()
	c.one = c.pushed(noter("1", bothEvents))
	res, err := client.UploadModule(t.Context(), c.c, &modulev1.UploadModuleRequest{Wasm: newer.Build()})
	if err != nil {
		t.Fatal(err)
	}
	c.two = res.GetDigest()
	plan.Prefix = "new"
	if _, err := client.ActivateModule(t.Context(), c.c, &modulev1.ActivateModuleRequest{EntityType: "note", Digest: c.two, Rollout: plan}); err != nil {
		t.Fatal(err)
	}
	return c, log
}

// TestBrokenRuleAbortsRollout checks that a rollout is aborted and its entities go back when
// the newer module violates a rule. The rollout, the history and the log must state the
// reason.
func TestBrokenRuleAbortsRollout(t *testing.T) {
	for rule, newer := range map[string]guest.Module{
		"faults>0":        trapping(noter("2", bothEvents)),
		"rejections>+20%": rejecting(noter("2", bothEvents)),
	} {
		t.Run(rule, func(t *testing.T) {
			c, log := newRules(t, newer, &modulev1.RolloutPlan{Rules: "faults>5000," + rule})
			for i := range 110 {
				c.notes(fmt.Sprint("old", i%10))
				if rule == "faults>0" && i > 0 {
					continue
				}
				_ = c.note(fmt.Sprint("new", i%10)) // fails until the older module serves the entity again
			}
			var err error
			for deadline := time.Now().Add(testkit.Patience); client.CodeOf(err) != connect.CodeNotFound; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("it is not aborted")
				}
				_, err = client.Rollout(t.Context(), c.c, "note")
			}
			if by := "rule:" + rule; !strings.Contains(err.Error(), by) {
				t.Errorf("the rollout is over: %v", err)
			}
			changes, err := client.ModuleHistory(t.Context(), c.c, "note")
			if err != nil || changes[0].GetKind() != modulev1.ActivationChange_KIND_ABORT || changes[0].GetChangedBy() != "rule:"+rule {
				t.Errorf("the history: %v, %v", changes, err)
			}
			if said := log.of("aborting a rollout"); len(said) != 1 || !strings.Contains(said[0], rule+": ") {
				t.Errorf("the log: %q", said)
			}
			c.written(nil, "new1", "new11", "old1")
		})
	}
}

// TestRolloutCompletesIfRulesHold checks that a module that behaves like the
// older module serves all entities in the end, and that the rollout and the
// metrics show the counts of both modules.
func TestRolloutCompletesIfRulesHold(t *testing.T) {
	const rules = "faults>0,rejections>+20%,p99>30s"
	c, _ := newRules(t, emits(noter("2", bothEvents), "new"), &modulev1.RolloutPlan{Rules: rules, Steps: []uint32{5000, 10_000}, Pause: durationpb.New(time.Hour)})
	for range 120 {
		c.notes("new1", "old1")
	}
	r, err := client.Rollout(t.Context(), c.c, "note")
	if err != nil || r.GetRules() != rules || r.GetNewer().GetCommands() != 120 || r.GetOlder().GetCommands() != 120 || r.GetNewer().GetFaults() != 0 || r.GetNewer().GetP99().AsDuration() <= 0 {
		t.Fatal(r, err)
	}
	metrics := c.metrics()
	for _, want := range []string{
		`hostd_rollout_commands_total{entity_type="note",version="canary"} 120`, `hostd_rollout_commands_total{entity_type="note",version="current"} 120`,
		`hostd_rollout_rejections_total{entity_type="note",version="canary"} 0`, `hostd_rollout_faults_total{entity_type="note",version="canary"} 0`,
		`hostd_rollout_command_seconds_count{entity_type="note",version="canary"} 120`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("%s is missing", want)
		}
	}
	// A plan with the same part and a different pause continues the rollout.
	plan := &modulev1.RolloutPlan{Rules: rules, Prefix: "new", Steps: []uint32{5000, 10_000}, Pause: durationpb.New(time.Second)}
	if _, err := client.ActivateModule(t.Context(), c.c, &modulev1.ActivateModuleRequest{EntityType: "note", Digest: c.two, Rollout: plan}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(testkit.Patience); c.serves("note") != c.two; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the steps are not taken")
		}
		c.notes("new1", "old1")
	}
	if got := c.kinds(); got != "promote canary canary canary activate" {
		t.Errorf("the history is %s", got)
	}
	if metrics := c.metrics(); strings.Contains(metrics, "hostd_rollout_commands_total{") {
		t.Error("one module serves all, and two are counted")
	}
	if _, err := client.ActivateModule(t.Context(), c.c, &modulev1.ActivateModuleRequest{EntityType: "note", Digest: c.one, Rollout: &modulev1.RolloutPlan{Share: 5, Rules: "latency>5"}}); client.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("what is no rule: %v", err)
	}
}
