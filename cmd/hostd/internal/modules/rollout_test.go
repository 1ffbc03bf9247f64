package modules

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
)

// TestInvalidRolloutFlagsAreRejected checks that invalid flags are rejected before any call.
func TestInvalidRolloutFlagsAreRejected(t *testing.T) {
	parse := func(args ...string) (string, error) {
		var p Part
		c := &cobra.Command{}
		p.Flags(c)
		if err := c.ParseFlags(args); err != nil {
			return "", err
		}
		if err := p.Parse(c, false); err != nil || p.Plan == nil {
			return "", err
		}
		text := partText(p.Plan.GetShare(), p.Plan.GetPrefix())
		for _, share := range p.Plan.GetSteps() {
			text += " " + partText(share, "")
		}
		if p.Plan.GetRules() != "" {
			text += " " + p.Plan.GetRules()
		}
		if p.Plan.GetPause() != nil {
			text += " " + p.Plan.GetPause().AsDuration().String()
		}
		return text, nil
	}
	for args, want := range map[string]string{
		"":                                       "",
		"--percent=5":                            "5%",
		"--percent=0.01":                         "0.01%",
		"--prefix=a":                             "a*",
		"--percent=5 --abort=faults>0,p99>+50%":  "5% faults>0,p99>+50%",
		"--percent=99.99 --prefix=a":             "99.99% and a*",
		"--steps=1,5,25,100":                     "1% 5% 25% 100% " + (10 * time.Minute).String(),
		"--steps=1,50 --pause=30s --prefix=test": "1% and test* 50% 30s",
	} {
		if got, err := parse(strings.Fields(args)...); err != nil || got != want {
			t.Errorf("%s: %q, want %q: %v", args, got, want, err)
		}
	}
	for _, args := range []string{
		"--percent=0", "--percent=100", "--percent=-1", "--percent=NaN", "--percent=x", "--prefix=", "--steps=5", "--steps=100",
		"--steps=100,5", "--steps=5,101", "--percent=5 --steps=5,10", "--pause=5s", "--percent=5 --pause=5s",
		"--abort=faults>0", "--percent=5 --abort=faults", "--percent=5 --abort=",
	} {
		if got, err := parse(strings.Fields(args)...); err == nil {
			t.Errorf("%s: %q", args, got)
		}
	}
	var p Part
	c := &cobra.Command{}
	p.Flags(c)
	if err := c.ParseFlags([]string{"--percent=5"}); err != nil {
		t.Fatal(err)
	}
	if err := p.Parse(c, true); err == nil {
		t.Error("limits with a part")
	}
}

// TestOverdueStepIsShownAsDue checks that a step that was not performed in time is shown as
// due, and not with a time in the past.
func TestOverdueStepIsShownAsDue(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := &modulev1.Rollout{Steps: []uint32{5000, 10_000}, Pause: durationpb.New(time.Minute)}
	const text = "then 50%, 100%, 1m0s apart"
	if got := stepsText(r, now); got != text {
		t.Errorf("steps of no time are shown as %q", got)
	}
	for after, want := range map[time.Duration]string{
		time.Second:  text + "; the next step at 2026-01-02 03:04:06",
		-time.Second: text + "; the next step is due",
	} {
		r.DueAt = timestamppb.New(now.Add(after))
		if got := stepsText(r, now); got != want {
			t.Errorf("a step %v from now is shown as %q", after, got)
		}
	}
	for nodes, want := range map[uint32]string{1: "1 node did not report what it counted", 2: "2 nodes did not report what they counted"} {
		if got := silentText(nodes, "counted"); got != want {
			t.Errorf("%d silent nodes are shown as %q", nodes, got)
		}
	}
}
