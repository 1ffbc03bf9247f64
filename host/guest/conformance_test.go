package guest

import (
	"bytes"
	"testing"
)

// TestVariedInstancesDiffer checks that a guest that evolves state sees the
// varied clock and random numbers of its instance.
func TestVariedInstancesDiffer(t *testing.T) {
	e := newEngine(t, Options{})
	for name, m := range map[string]*Module{
		"clock":  mustCompile(t, e, probe("clock_time_get", i32c(0), i64c(0), i32c(scratchAt)).build()),
		"random": mustCompile(t, e, probe("random_get", i32c(scratchAt), i32c(32)).build()),
	} {
		evolve := func(now int64, seed uint64) []byte {
			g, err := m.InstantiateVaried(t.Context(), now, seed)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			if err := g.Apply(0, nil); err != nil {
				t.Fatal(err)
			}
			out, err := g.Snapshot(0)
			return split(t, out, err).scratch
		}
		if bytes.Equal(evolve(1, 1), evolve(2, 2)) {
			t.Errorf("%s: varied instances evolve alike", name)
		}
		if !bytes.Equal(evolve(fixedInstant, fixedSeed), evolve(fixedInstant, fixedSeed)) {
			t.Errorf("%s: instances alike evolve apart", name)
		}
	}
}
