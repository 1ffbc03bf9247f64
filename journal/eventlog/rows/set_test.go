package rows

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

// The set agrees with a map, including rows with the same hash.
func TestRowSetAgreesWithMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var s set
	want := make(map[uint64][]uint32)
	places := make([]uint64, 3000)
	for i := range places {
		places[i] = rng.Uint64()
	}
	rows := 0
	for range 30_000 {
		place := places[rng.IntN(len(places))]
		tags := want[place]
		switch n := rng.IntN(8); {
		case len(tags) == 0 || n == 0 && len(tags) < maxKnown:
			tag := rng.Uint32()
			s.add(place, tag)
			want[place] = append(tags, tag)
			rows++
		case n < 4:
			i, to := rng.IntN(len(tags)), rng.Uint32()
			if !s.change(place, tags[i], to) {
				t.Fatal("a row that was added is not changed")
			}
			tags[i] = to
		default:
			i := rng.IntN(len(tags))
			if !s.remove(place, tags[i]) {
				t.Fatal("a row that was added is not removed")
			}
			want[place] = slices.Delete(tags, i, i+1)
			rows--
		}
		if s.change(rng.Uint64(), 1, 2) || s.remove(place, rng.Uint32()) {
			t.Fatal("a row is changed that was never added")
		}
		place = places[rng.IntN(len(places))]
		known := s.find(place)
		if known.n != len(want[place]) || s.rows != rows {
			t.Fatalf("%d rows known of %d, %d in all of %d", known.n, len(want[place]), s.rows, rows)
		}
		for _, tag := range want[place] {
			if !known.has(tag) {
				t.Fatal("a tag is not known")
			}
		}
	}
}

// The set takes at most 16 bytes a row for any number of rows, and never much
// more while it grows.
func TestRowSetIsSmall(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var s set
	for _, rows := range []int{40_000, 100_000, 150_000, 200_000, 262_144, 300_000} {
		for s.rows < rows {
			s.add(rng.Uint64(), rng.Uint32())
		}
		if each := float64(heap()-before) / float64(rows); each > 16 {
			t.Errorf("%d rows take %.1f bytes each", rows, each)
		} else {
			t.Logf("%d rows: %.1f bytes each", rows, each)
		}
	}
	runtime.KeepAlive(&s)
}

func BenchmarkRowSet(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 3))
	var s set
	places := make([]uint64, 1_500_000)
	for i := range places {
		places[i] = rng.Uint64()
		s.add(places[i], 1)
	}
	b.Run("find", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if k := s.find(places[i*7919%len(places)]); k.n != 1 {
				b.Fatal(k)
			}
		}
	})
	b.Run("change", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			s.change(places[i*7919%len(places)], 1, 1)
		}
	})
	b.Run("fill", func(b *testing.B) {
		for b.Loop() {
			var s set
			for _, place := range places {
				s.add(place, 1)
			}
		}
	})
}
