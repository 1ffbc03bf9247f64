package modules

import (
	"testing"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
)

// TestServedPartsText checks the text about a module's part in types that a
// different module serves.
func TestServedPartsText(t *testing.T) {
	m := &modulev1.Module{Parts: []*modulev1.Part{
		{EntityType: "a", Kind: modulev1.Part_KIND_ROLLOUT, Share: 500, Prefix: "vip-", State: modulev1.Rollout_STATE_PAUSED},
		{EntityType: "b", Kind: modulev1.Part_KIND_ROLLOUT, Share: 500, RemainingEntities: 2, State: modulev1.Rollout_STATE_RUNNING},
		{EntityType: "c", Kind: modulev1.Part_KIND_REMAINDER, RemainingEntities: 3, State: modulev1.Rollout_STATE_ABORTED},
		{EntityType: "c", Kind: modulev1.Part_KIND_SHADOW, Share: 50},
	}}
	const want = "a: 5% and vip-* (paused); b: 5% and 2 pinned entities (running); c: 3 pinned entities; c: 0.5% of commands (shadow)"
	if got := PartsText(m); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := PartsText(&modulev1.Module{ActiveFor: []string{"a"}}); got != "" {
		t.Errorf("of a module that serves all: %s", got)
	}
}
