package modules

import (
	"testing"
	"time"

	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/sharding/meta"
)

// TestStepsAreDueAfterTheirPause checks that a step is due after its pause, by
// the clock of the node that takes the step, and only if the rollout is
// running.
func TestStepsAreDueAfterTheirPause(t *testing.T) {
	now := time.Unix(1000, 7)
	r := &Rollouts{now: func() time.Time { return now }}
	const pause = 10 * time.Minute
	for _, c := range []struct {
		about meta.Rollout
		goes  bool
	}{
		{meta.Rollout{State: meta.RolloutRunning, Steps: []uint32{500}, Pause: int64(pause)}, true},
		{meta.Rollout{State: meta.RolloutRunning, Steps: []uint32{500}, Pause: int64(pause), DueAt: 5}, true}, // time of the previous step
		{meta.Rollout{State: meta.RolloutRunning, Pause: int64(pause), DueAt: 5}, false},
		{meta.Rollout{State: meta.RolloutPaused, Steps: []uint32{500}, Pause: int64(pause), DueAt: 5}, false},
		{meta.Rollout{State: meta.RolloutAborting, Steps: []uint32{500}, Pause: int64(pause)}, false},
		{meta.Rollout{State: meta.RolloutHeld, Steps: []uint32{500}, Pause: int64(pause)}, false},
		{meta.Rollout{State: meta.RolloutAborted}, false},
	} {
		now = time.Unix(1000, 7)
		next := c.about
		r.puts(meta.ChangeCanary, []meta.PutRollout{{Rollout: &next}, {Promote: true}})
		if (next.DueAt != 0) != c.goes || c.goes && next.DueAt != now.UnixNano()+int64(pause) {
			t.Errorf("%+v: the next step is due at %d", c.about, next.DueAt)
		}
		for _, wait := range []time.Duration{0, pause - 1, pause, 10 * pause} {
			now = time.Unix(1000, 7).Add(wait)
			if due := r.stepDue(&next); due != (c.goes && wait >= pause) {
				t.Errorf("%+v: after %v a step is due: %v", c.about, wait, due)
			}
		}
	}
}

// TestRepeatedBeginMatchesRollout checks that a repeated call matches the
// active rollout at any of its steps, and that a different plan does not match.
func TestRepeatedBeginMatchesRollout(t *testing.T) {
	going := func(share uint32, steps ...uint32) []meta.Activation {
		r := &meta.Rollout{State: meta.RolloutRunning, Part: meta.Part{Share: share, Prefix: "a"}, Steps: steps, Pause: 7, Rules: "faults>0"}
		return []meta.Activation{{EntityType: "one", Bound: meta.Bound{Revision: 3}, Rollout: r}, {EntityType: "two", Bound: meta.Bound{Revision: 4}, Rollout: r}}
	}
	asked := func(change func(*RolloutBegin)) RolloutBegin {
		b := RolloutBegin{RolloutPlan: RolloutPlan{Part: meta.Part{Share: 100, Prefix: "a"}, Steps: []uint32{200, 300}, Pause: 7, Rules: "faults>0"}}
		change(&b)
		return b
	}
	same := asked(func(*RolloutBegin) {})
	for _, is := range [][]meta.Activation{going(100, 200, 300), going(200, 300), going(300)} {
		if revision, ok := matchingRollout(is, same); !ok || revision != 4 {
			t.Errorf("at %d: %d, %v", is[0].Rollout.Share, revision, ok)
		}
	}
	for _, is := range [][]meta.Activation{going(100), going(100, 300), going(50, 200, 300), going(250, 300), {{EntityType: "one"}}} {
		if _, ok := matchingRollout(is, same); ok {
			t.Errorf("%+v is what was asked for", is[0].Rollout)
		}
	}
	for name, other := range map[string]RolloutBegin{
		"pause":  asked(func(b *RolloutBegin) { b.Pause = 8 }),
		"rules":  asked(func(b *RolloutBegin) { b.Rules = "" }),
		"prefix": asked(func(b *RolloutBegin) { b.Prefix = "b" }),
		"share":  asked(func(b *RolloutBegin) { b.Share = 150 }),
		"steps":  asked(func(b *RolloutBegin) { b.Steps = b.Steps[:1] }),
	} {
		if _, ok := matchingRollout(going(100, 200, 300), other); ok {
			t.Errorf("another %s is what was asked for", name)
		}
	}
}

// TestBrokenRuleNamesItsType checks that a rule that one of the types breaks
// stops the rollout of all types that share it, and that the reason names the
// type.
func TestBrokenRuleNamesItsType(t *testing.T) {
	r := &meta.Rollout{Rules: "rejections>100,faults>2"}
	going := []meta.Activation{{EntityType: "one", Rollout: r}, {EntityType: "two", Rollout: r}}
	by := map[string]*versions{"one": {newer: trial.Counts{Faults: 2}}, "two": {newer: trial.Counts{Faults: 2}}}
	if rule, why, err := broken(going, by); why != "" || err != nil {
		t.Error(rule, why, err) // the counts of different types are not added
	}
	by["two"].newer.Faults++
	if rule, why, err := broken(going, by); err != nil || rule.String() != "faults>2" || why[:5] != "two: " {
		t.Error(rule, why, err)
	}
}

// TestServedPartIsFormattedInPercent checks that an error names the part in
// percent, and names no prefix if there is none.
func TestServedPartIsFormattedInPercent(t *testing.T) {
	for want, part := range map[string]meta.Part{
		"50% of the entities":                              {Share: 5000},
		"0.25% of the entities":                            {Share: 25},
		`the entities with the prefix "t-"`:                {Prefix: "t-"},
		`5% of the entities and those with the prefix "t"`: {Share: 500, Prefix: "t"},
	} {
		if got := servedPart(part); got != want {
			t.Errorf("%+v is %q, want %q", part, got, want)
		}
	}
}
