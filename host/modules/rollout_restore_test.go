package modules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// TestRestoredRolloutIsAccepted checks that the metadata accepts a restored
// rollout whatever its state was in the other cluster, that no entity returns
// to the older module, and that no step is due.
func TestRestoredRolloutIsAccepted(t *testing.T) {
	older, newer := meta.Digest{1}, meta.Digest{2}
	part, stay := meta.Part{Share: 3000, Prefix: "x"}, []string{"a", "b"}
	for name, tt := range map[string]struct {
		was  meta.Rollout
		want meta.RolloutState // empty if nothing of the rollout is left
	}{
		"running":                {meta.Rollout{State: meta.RolloutRunning, Part: part, Steps: []uint32{5000, sharding.Buckets}, Pause: 1, DueAt: 7}, meta.RolloutPaused},
		"paused":                 {meta.Rollout{State: meta.RolloutPaused, Part: part, Note: "wait"}, meta.RolloutPaused},
		"aborting":               {meta.Rollout{State: meta.RolloutAborting, Part: part, BackForcedBy: "ann"}, meta.RolloutPaused},
		"held":                   {meta.Rollout{State: meta.RolloutHeld, Part: part}, meta.RolloutPaused},
		"with those that stay":   {meta.Rollout{State: meta.RolloutRunning, Part: part, Stay: stay}, meta.RolloutPaused},
		"aborted":                {meta.Rollout{State: meta.RolloutAborted, Stay: stay}, meta.RolloutAborted},
		"aborted, held by force": {meta.Rollout{State: meta.RolloutHeld, Stay: stay, BackForcedBy: "ann"}, meta.RolloutAborted},
		"of no entity":           {meta.Rollout{State: meta.RolloutHeld}, ""},
	} {
		tt.was.Digest, tt.was.Types = newer, []string{"note"}
		tt.was.First, tt.was.Began = meta.Part{Share: 1}, 99
		next, kind, left := restoreRollout(tt.was)
		if left != (tt.want != "") {
			t.Errorf("%s: left %v", name, left)
		}
		if !left {
			continue
		}
		s, index := meta.New(), uint64(0)
		run := func(command []byte) {
			t.Helper()
			index++
			_, result, _ := s.Apply(index, command)
			if _, err := meta.DecodeResult(result); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		run(meta.CreateCluster(meta.Cluster{ID: "c", Format: 1, Shards: 1}, meta.Member{Node: "n1", Address: "127.0.0.1:7070", Status: meta.StatusUp, Speaks: sharding.SupportedVersions}))
		for _, d := range []meta.Digest{older, newer} {
			run(meta.PutModule(meta.Module{Digest: d, Size: 1, Name: "m", Version: "1.0", EntityTypes: []string{"note"}}))
		}
		run(meta.Bind("note", older, 1))
		b, _ := s.View().Activation("note")
		run(meta.PutRollouts(kind, 2, meta.PutRollout{EntityType: "note", Over: b.Revision, Rollout: &next}))
		b, _ = s.View().Activation("note")
		got := b.Rollout
		if got == nil || got.State != tt.want || got.DueAt != 0 || got.Part != tt.was.Part || !slices.Equal(got.Stay, tt.was.Stay) {
			t.Fatalf("%s: %+v", name, got)
		}
		if tt.want == meta.RolloutPaused && tt.was.State != tt.want && !strings.Contains(got.Note, string(tt.was.State)) {
			t.Errorf("%s: the note is %q", name, got.Note)
		}
		for i := range 200 {
			for _, id := range []string{fmt.Sprint("x", i), fmt.Sprint("e", i), "a"} {
				e := sharding.EntityID{Type: "note", ID: id}
				if tt.was.Serves(e) != got.Serves(e) {
					t.Errorf("%s: %s is served by another module", name, id)
				}
			}
		}
	}
}
