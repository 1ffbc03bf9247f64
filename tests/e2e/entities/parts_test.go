package entities

import (
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
)

// parts returns the types for which the list of modules shows a module as
// active, and the types that it serves in part.
func (c *canaries) parts(digest string) (active, parts []string) {
	c.t.Helper()
	modules, err := c.c.Modules(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, m := range modules {
		if m.GetDigest() != digest {
			continue
		}
		for _, p := range m.GetParts() {
			parts = append(parts, fmt.Sprintf("%s %s %d%q %d %s", p.GetEntityType(), p.GetKind(), p.GetShare(), p.GetPrefix(), p.GetRemainingEntities(), p.GetState()))
		}
		return m.GetActiveFor(), parts
	}
	c.t.Fatal("there is no such module")
	return nil, nil
}

// TestModuleListShowsServedParts checks that the list of modules shows a
// module's part in a type that another module serves: the share of a rollout,
// the entities that stay after an abort, and the commands that it runs as a
// shadow.
func TestModuleListShowsServedParts(t *testing.T) {
	c := newCanaries(t, `[{"type":"happened"}]`, bothEvents)
	serves := func(when string, want ...string) {
		t.Helper()
		if active, parts := c.parts(c.one); !slices.Equal(active, []string{"note"}) || len(parts) > 0 {
			t.Errorf("%s, the older module is active for %q, and for parts %q", when, active, parts)
		}
		if active, parts := c.parts(c.two); len(active) > 0 || !slices.Equal(parts, want) {
			t.Errorf("%s, the newer module is active for %q, and for parts %q, want %q", when, active, parts, want)
		}
	}
	put := func(value string) {
		t.Helper()
		if _, err := c.c.PutSetting(t.Context(), shadowKey, value); err != nil {
			t.Fatal(err)
		}
	}
	serves("at first")
	put(c.two + " 0.5%")
	serves("beside", `note KIND_SHADOW 50"" 0 STATE_UNSPECIFIED`)
	if err := c.begin(c.two, 2000, "e1"); err != nil {
		t.Fatal(err)
	}
	serves("in part", `note KIND_ROLLOUT 2000"e1" 0 STATE_RUNNING`, `note KIND_SHADOW 50"" 0 STATE_UNSPECIFIED`)
	put("")
	if _, err := c.change(modulev1.ChangeRolloutRequest_ACTION_PAUSE, false); err != nil {
		t.Fatal(err)
	}
	serves("paused", `note KIND_ROLLOUT 2000"e1" 0 STATE_PAUSED`)
	stay := c.of(2000, "e1")[:2]
	c.written(stay, stay...)
	if r, err := c.change(modulev1.ChangeRolloutRequest_ACTION_ABORT, false); err != nil || len(r.GetRemainingEntityIds()) != 2 {
		t.Fatal(r, err)
	}
	serves("aborted but for what stays", `note KIND_REMAINDER 0"" 2 STATE_ABORTED`)
	if _, err := c.change(modulev1.ChangeRolloutRequest_ACTION_ABORT, true); err != nil {
		t.Fatal(err)
	}
	serves("aborted")
	now, err := client.RolloutState(t.Context(), c.c, "note")
	if err != nil || now.GetAborted() == "" || now.GetRollout() != nil || now.GetShadow() != nil {
		t.Errorf("the rollout that was aborted: %v, %v", now, err)
	}
	if r, err := client.Rollout(t.Context(), c.c, "note"); client.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("there is a rollout: %v, %v", r, err)
	}
	if err := c.begin(c.two, 0, "fresh"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.change(modulev1.ChangeRolloutRequest_ACTION_PROMOTE, false); err != nil {
		t.Fatal(err)
	}
	if active, parts := c.parts(c.two); !slices.Equal(active, []string{"note"}) || len(parts) > 0 {
		t.Errorf("at last the module is active for %q, and for parts %q", active, parts)
	}
}
