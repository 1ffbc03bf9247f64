package sorted

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// The test makes random changes in phases of growth and shrinking, and compares
// the result with a built-in map.
func TestMapAgreesWithBuiltIn(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var m Map[int64, int]
	want := make(map[int64]int)
	for i := range 200_000 {
		key := rng.Int64N(20_000)
		switch i / 20_000 % 3 {
		case 0:
			key = int64(-i) // each key is before all others
		case 1:
			key = rng.Int64N(40_000) - 20_000
		}
		if i/20_000%2 == 0 || rng.IntN(4) == 0 {
			m.Set(key, i)
			want[key] = i
		} else {
			_, has := want[key]
			if m.Delete(key) != has {
				t.Fatalf("Delete(%d) is %v", key, !has)
			}
			delete(want, key)
		}
		if m.Len() != len(want) {
			t.Fatalf("%d keys, want %d", m.Len(), len(want))
		}
		key = rng.Int64N(40_000) - 20_000
		got, ok := m.Get(key)
		if v, has := want[key]; ok != has || got != v {
			t.Fatalf("Get(%d) = %d, %v, want %d, %v", key, got, ok, v, has)
		}
		if i%5_000 != 0 {
			continue
		}
		keys := slices.Sorted(maps.Keys(want))
		from, _ := slices.BinarySearch(keys, key)
		if got := collect(m.All); !slices.Equal(got, keys) {
			t.Fatalf("All has %d keys, want %d", len(got), len(keys))
		}
		if got := collect(m.From(key)); !slices.Equal(got, keys[from:]) {
			t.Fatalf("From(%d) has %d keys, want %d", key, len(got), len(keys)-from)
		}
	}
	for key := range want {
		m.Delete(key)
	}
	if _, _, ok := m.First(); ok || m.Len() != 0 {
		t.Fatal("keys are left")
	}
}

func collect(seq func(func(int64, int) bool)) (keys []int64) {
	for key := range seq {
		keys = append(keys, key)
	}
	return keys
}
