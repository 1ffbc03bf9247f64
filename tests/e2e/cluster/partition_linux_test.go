package cluster

import (
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/tests/support/testkit"
)

// refuses checks that a node without a quorum answers every request with
// unavailable. That includes requests that arrive before the node has noticed,
// but not requests that it answered before the cut.
func (w *world) refuses(place int) {
	w.t.Helper()
	first, noticing := w.askAll(place)
	for _, code := range first {
		if code != 0 && code != connect.CodeUnavailable {
			w.t.Fatalf("%s is cut off and answers %v, in %s", w.Node(place).ID(), first, noticing)
		}
	}
	again, knowing := w.askAll(place)
	if i := slices.IndexFunc(again, func(c connect.Code) bool { return c != connect.CodeUnavailable }); i >= 0 {
		w.t.Fatalf("%s has been cut off for %s and answers %v", w.Node(place).ID(), noticing, again)
	}
	w.t.Logf("%s is cut off and says so within %s, later within %s", w.Node(place).ID(), noticing.Round(time.Millisecond), knowing.Round(time.Millisecond))
}

// answersOrRefuses checks a node that has a quorum but cannot reach one of the
// leaders. It must reject requests for the shards of that leader, and answer
// requests for all other shards.
func (w *world) answersOrRefuses(place int) {
	w.t.Helper()
	codes, slowest := w.askAll(place)
	for _, code := range codes {
		if code != 0 && code != connect.CodeUnavailable {
			w.t.Fatalf("%s does not reach a leader and answers %v, in %s", w.Node(place).ID(), code, slowest)
		}
	}
}

// goOn checks that the nodes with a quorum answer requests for every shard,
// also during the rest of the cut, and that the load makes progress.
func (w *world) goOn(places ...int) {
	w.t.Helper()
	for _, place := range places {
		w.serves(place)
	}
	w.pause(2 * time.Second)
	for _, place := range places {
		w.serves(place)
	}
	w.goesOn(100)
}

// shape is a partition and the conditions that must hold while it lasts.
type shape struct {
	name  string
	links func(victim, b, c int) []link
	while func(w *world, victim int)
}

var partitions = []shape{
	{"one alone", func(v, b, c int) []link { return slices.Concat(between(v, b), between(v, c)) }, func(w *world, victim int) {
		w.refuses(victim)
		w.goOn((victim+1)%nodes, (victim+2)%nodes)
	}},
	{"one that hears and is not heard", func(v, b, c int) []link { return []link{{v, b}, {v, c}} }, func(w *world, victim int) {
		w.goOn((victim+1)%nodes, (victim+2)%nodes)
	}},
	{"one that is heard and hears nobody", func(v, b, c int) []link { return []link{{b, v}, {c, v}} }, func(w *world, victim int) {
		w.goOn((victim+1)%nodes, (victim+2)%nodes)
	}},
	{"one way of one link", func(v, b, _ int) []link { return []link{{v, b}} }, func(w *world, victim int) {
		w.goOn((victim + 2) % nodes)
	}},
	{"one link", func(v, b, _ int) []link { return between(v, b) }, func(w *world, victim int) {
		w.goOn((victim + 2) % nodes)
		for _, place := range []int{victim, (victim + 1) % nodes} {
			w.answersOrRefuses(place)
		}
	}},
	{"all apart", func(v, b, c int) []link { return slices.Concat(between(v, b), between(v, c), between(b, c)) }, func(w *world, _ int) {
		for place := range nodes {
			w.refuses(place)
		}
	}},
}

// TestPartitions checks that the side with a quorum continues, that the other
// side rejects requests, that no caller receives an impossible answer, and that
// after the partition every node answers requests for every shard again.
func TestPartitions(t *testing.T) {
	testkit.Long(t, "long")
	if !inside(t) {
		return
	}
	w := begin(t)
	net := newNetwork(w)
	rounds := max(1, *faults/len(partitions))
	for round := range rounds {
		for _, s := range partitions {
			victim := w.rng.IntN(nodes)
			b, c := (victim+1)%nodes, (victim+2)%nodes
			t.Logf("%s: n%d", s.name, victim+1)
			w.goesOn(100)
			heal := net.cut(s.links(victim, b, c)...)
			began := time.Now()
			s.while(w, victim)
			cut := time.Now()
			heal()
			for place := range nodes {
				w.serves(place)
			}
			t.Logf("%s: cut for %s, whole again after %s", s.name, cut.Sub(began).Round(time.Millisecond), time.Since(cut).Round(time.Millisecond))
			w.done[s.name]++
		}
		if round < rounds-1 {
			w.load.NextEntities()
		}
	}
	w.end()
}
