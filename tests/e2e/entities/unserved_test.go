package entities

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// If a module does not have the command of pending timers, activating it, in
// whichever way, returns a warning that names the timers. A module that has the
// command gets no warning.
func TestActivationWarnsAboutUnservedTimers(t *testing.T) {
	n := newNode(t)
	first, err := n.c.Upload(t.Context(), testkit.BuildGuest(t, n.module), false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		n.send(fmt.Sprint("a", i), "arm", map[string]any{"name": "late", "afterMs": int64(time.Hour/time.Millisecond) * int64(i+1), "times": 1})
	}
	wasm := testkit.BuildGuest(t, "tests/e2e/entities/silent")
	named := func(what string, remarks []string, err error) {
		t.Helper()
		if err != nil || !slices.ContainsFunc(remarks, func(r string) bool {
			return strings.Contains(r, "ring (5)") && strings.Contains(r, "late of a0") && !strings.Contains(r, "a4")
		}) {
			t.Errorf("%s: %q, %v", what, remarks, err)
		}
	}
	back := func() {
		t.Helper()
		res, err := client.ActivateModule(t.Context(), n.c, &modulev1.ActivateModuleRequest{EntityType: "alarm", Digest: first.Digest})
		if err != nil || strings.Contains(fmt.Sprint(res.GetWarnings()), "timers") {
			t.Fatalf("a module with the command: %v, %v", res, err)
		}
	}
	pushed, err := client.UploadModule(t.Context(), n.c, &modulev1.UploadModuleRequest{Wasm: wasm, Activate: true})
	named("push", pushed.GetWarnings(), err)
	back()
	activated, err := client.ActivateModule(t.Context(), n.c, &modulev1.ActivateModuleRequest{EntityType: "alarm", Digest: pushed.GetDigest()})
	named("activate", activated.GetWarnings(), err)
	back()
	begun, err := client.ActivateModule(t.Context(), n.c, &modulev1.ActivateModuleRequest{EntityType: "alarm", Digest: pushed.GetDigest(), Rollout: &modulev1.RolloutPlan{Share: 1000}})
	named("a rollout", begun.GetWarnings(), err)
	if n.timers("a0") != 1 {
		t.Error("a timer was used up")
	}
}
