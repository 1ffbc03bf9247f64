package entity

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hostd/hostd/host/principal"
)

func named(t testing.TB, name string) *principal.Principal {
	t.Helper()
	p, err := principal.New(principal.Token, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// apart returns n callers that share no place.
func apart(t testing.TB, q *fairQueue[item], n int) (out []*principal.Principal) {
	t.Helper()
	taken := map[uint64]bool{}
	for i := 0; len(out) < n; i++ {
		p := named(t, fmt.Sprint("caller-", i))
		if place := q.placeOf(p); !taken[place] {
			taken[place] = true
			out = append(out, p)
		}
	}
	return out
}

// item is the nth item of a caller and a type.
type item struct {
	who  string
	what string
	n    int
}

// TestFairQueueServesCallersEqually checks that callers with items take equal
// turns: a caller with 200 items is served no more often than callers with
// few items, until their items run out.
func TestFairQueueServesCallersEqually(t *testing.T) {
	var q fairQueue[item]
	who := apart(t, &q, 3)
	for i := range 200 {
		q.Push(who[0], "flood", item{who[0].Name, "flood", i})
	}
	for i := range 20 {
		q.Push(who[1], "quiet", item{who[1].Name, "quiet", i})
	}
	for i := range 10 {
		q.Push(who[2], "quiet", item{who[2].Name, "quiet", i})
	}
	if !q.Others(who[0], "flood") {
		t.Error("Others does not report that items of several callers wait")
	}
	served := map[string]int{}
	for range 30 {
		served[q.Pop().who]++
	}
	if served[who[0].Name] != 10 || served[who[1].Name] != 10 || served[who[2].Name] != 10 {
		t.Errorf("of 30: %v", served)
	}
	for range 20 {
		served[q.Pop().who]++
	}
	if served[who[0].Name] != 20 || served[who[1].Name] != 20 || served[who[2].Name] != 10 {
		t.Errorf("of 50: %v", served)
	}
	if q.Len() != 180 || q.Others(who[0], "flood") || !q.Others(who[1], "flood") || !q.Others(who[0], "quiet") {
		t.Errorf("%d wait, of one", q.Len())
	}
}

// TestFairQueueServesTypesOfCallerEqually checks that the types of a caller
// take turns, and that more types do not give a caller more turns.
func TestFairQueueServesTypesOfCallerEqually(t *testing.T) {
	var q fairQueue[item]
	who := apart(t, &q, 2)
	for i := range 30 {
		q.Push(who[0], "a", item{"0", "a", i})
	}
	for i := range 30 {
		q.Push(who[0], "b", item{"0", "b", i})
		q.Push(who[1], "a", item{"1", "a", i})
	}
	served := map[item]int{}
	for range 40 {
		it := q.Pop()
		it.n = 0
		served[it]++
	}
	if served[item{"0", "a", 0}] != 10 || served[item{"0", "b", 0}] != 10 || served[item{"1", "a", 0}] != 20 {
		t.Errorf("of 40: %v", served)
	}
}

// TestFairQueueMatchesModel checks under random operations that no item is
// lost or duplicated, that items with the same caller and type stay in order,
// and that no caller gets more than two turns while another caller waits for
// a turn.
func TestFairQueueMatchesModel(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		q := fairQueue[item]{Salt: seed}
		who := []*principal.Principal{nil}
		for i := range rng.IntN(90) {
			who = append(who, named(t, fmt.Sprint(i)))
		}
		var waiting []item // items in order of arrival
		passed := map[uint64]map[uint64]int{}
		place := map[string]uint64{}
		made := 0
		for range 2000 {
			switch p := rng.IntN(100); {
			case p < 50 || p < 80 && seed%3 == 0:
				caller := who[rng.IntN(len(who))]
				it := item{"", []string{"a", "b", "c"}[rng.IntN(3)], made}
				if caller != nil {
					it.who = caller.Name
				}
				place[it.who] = q.placeOf(caller)
				made++
				q.Push(caller, it.what, it)
				waiting = append(waiting, it)
			case p < 99:
				if q.Len() == 0 {
					continue
				}
				it := q.Pop()
				at := slices.Index(waiting, it)
				if at < 0 {
					t.Fatalf("seed %d: %v was not waiting", seed, it)
				}
				mine := place[it.who]
				for _, before := range waiting[:at] {
					if before.who == it.who && before.what == it.what {
						t.Fatalf("seed %d: %v went before %v", seed, it, before)
					}
				}
				waiting = slices.Delete(waiting, at, at+1)
				// The places that wait while this place is served.
				waits := map[uint64]bool{}
				for _, w := range waiting {
					waits[place[w.who]] = true
				}
				delete(passed, mine)
				for other := range waits {
					if other == mine {
						continue
					}
					if passed[other] == nil {
						passed[other] = map[uint64]int{}
					}
					if passed[other][mine]++; passed[other][mine] > 2 {
						t.Fatalf("seed %d: a caller was served %d times while another one waited", seed, passed[other][mine])
					}
				}
				for other := range passed {
					if !waits[other] {
						delete(passed, other)
					}
				}
			default:
				leaves := func(it item) bool { return it.n%3 == int(seed%3) }
				q.Sift(leaves)
				waiting = slices.DeleteFunc(waiting, leaves)
				clear(passed)
			}
			if q.Len() != len(waiting) {
				t.Fatalf("seed %d: %d wait, not %d", seed, q.Len(), len(waiting))
			}
		}
		for q.Len() > 0 {
			it := q.Pop()
			at := slices.Index(waiting, it)
			if at < 0 {
				t.Fatalf("seed %d: %v was not waiting", seed, it)
			}
			waiting = slices.Delete(waiting, at, at+1)
		}
		if len(waiting) > 0 {
			t.Fatalf("seed %d: %d are lost", seed, len(waiting))
		}
	}
}

func TestFairQueueOfOneCallerDoesNotAllocate(t *testing.T) {
	var q fairQueue[item]
	p := named(t, "one")
	round := func() {
		for i := range 10 {
			q.Push(p, "a", item{n: i})
		}
		for range 10 {
			q.Pop()
		}
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkQueue(b *testing.B) {
	for _, callers := range []int{1, 2, 50} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			b.ReportAllocs()
			var q fairQueue[item]
			who := apart(b, &q, callers)
			for i := range callers {
				q.Push(who[i], "a", item{n: i})
			}
			for i := 0; b.Loop(); i++ {
				q.Push(who[i%callers], "a", item{n: i})
				q.Pop()
			}
		})
	}
}
