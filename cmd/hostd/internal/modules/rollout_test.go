package modules

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestPartsOfFlags: what is no part is refused, before anything is asked.
func TestPartsOfFlags(t *testing.T) {
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
