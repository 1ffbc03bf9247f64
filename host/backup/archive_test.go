package backup

import (
	"testing"

	"github.com/hostd/hostd/sharding/meta"
)

// TestInterruptedImportContinues: wherever an import is interrupted while it
// activates the modules of a type, the next attempt results in the history of
// the archive.
func TestInterruptedImportContinues(t *testing.T) {
	const name = "a"
	digest := func(b byte) meta.Digest { return meta.Digest{b} }
	cluster := func(bound ...byte) *meta.State {
		s, index := meta.New(), uint64(0)
		run := func(command []byte) {
			t.Helper()
			index++
			_, result, _ := s.Apply(index, command)
			if _, err := meta.DecodeResult(result); err != nil {
				t.Fatal(err)
			}
		}
		run(meta.CreateCluster(meta.Cluster{ID: "c", Format: 1, Shards: 1}, meta.Member{Node: "n1", Address: "127.0.0.1:7070", Status: meta.StatusUp}))
		for b := byte(1); b < 5; b++ {
			run(meta.PutModule(meta.Module{Digest: digest(b), Size: 1, Name: "m", Version: "1.0", EntityTypes: []string{name}}))
		}
		for i, b := range bound {
			run(meta.Bind(name, digest(b), int64(i)))
		}
		return s
	}
	binding := func(s *meta.State) meta.Activation {
		b, _ := s.View().Activation(name)
		return b
	}
	for _, all := range [][]byte{{1}, {1, 2, 3}, {1, 2, 1}, {2, 1, 2, 3, 1, 2}} {
		want := binding(cluster(all...))
		for done := range len(all) + 1 {
			s := cluster(all[:done]...)
			for i, b := range append(unbound(binding(s), want), want.Bound) {
				_, result, _ := s.Apply(uint64(100+i), meta.Bind(name, b.Digest, b.At))
				if _, err := meta.DecodeResult(result); err != nil {
					t.Fatal(err)
				}
			}
			got := binding(s)
			if got.Digest != want.Digest || len(got.History) != len(want.History) {
				t.Fatalf("%v, interrupted after %d: %d modules before %s, want %d before %s", all, done, len(got.History), got.Digest, len(want.History), want.Digest)
			}
			for i, h := range got.History {
				if h.Digest != want.History[i].Digest || h.At != want.History[i].At {
					t.Errorf("%v, interrupted after %d: module %d before is %s of %d, want %s of %d", all, done, i, h.Digest, h.At, want.History[i].Digest, want.History[i].At)
				}
			}
		}
	}
	// Modules that somebody else has activated stay, and nothing is inserted
	// before them.
	if more := unbound(binding(cluster(4)), binding(cluster(1, 2, 3))); len(more) > 0 {
		t.Errorf("%d modules of before come after one that is no part of them", len(more))
	}
}
