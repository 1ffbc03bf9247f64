package entity

import (
	"testing"
)

// allStates collects the state of every entity that leaves memory.
type allStates []*checkedState

func (*allStates) Picks() bool             { return true }
func (*allStates) Room() bool              { return true }
func (a *allStates) Offer(s *checkedState) { *a = append(*a, s) }

// TestStatesInMemoryMatchReplays runs random commands, rebuilds many of the
// states from the journal, and checks that none differs.
func TestStatesInMemoryMatchReplays(t *testing.T) {
	compared, gone := 0, 0
	for seed := uint64(1); seed <= 400; seed++ {
		w := newWorld(t, seed)
		var states allStates
		w.core.opts.States = &states
		checker := NewStateChecker(StateCheckOptions{Histories: w, ChunkBytes: 60})
		w.play(600)
		w.prompt, w.bad, w.noSnapshot = true, -1, false
		for _, s := range states {
			equal, err := checker.Compare(t.Context(), s)
			switch {
			case equal:
				compared++
			case err == nil:
				t.Errorf("seed %d: %s of %v left with %s at %d, its events make something else", seed, s.ID, s.Type.Durable, s.Bytes, s.Sequence)
			default:
				gone++
			}
		}
		if err := checker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(w.problems) > 0 {
			t.Errorf("seed %d: %s", seed, w.problems[0])
		}
		if w.open != 0 {
			t.Fatalf("seed %d: %d guests are left", seed, w.open)
		}
	}
	t.Logf("%d states compared, of %d the records were lost", compared, gone)
	if compared < 500 {
		t.Errorf("only %d states were compared, %d not", compared, gone)
	}
}
