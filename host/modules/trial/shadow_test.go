package trial

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/sharding"
)

// TestQueuesAreBounded checks that commands beyond a bound on commands or
// bytes are dropped and counted, and taking commands makes room again.
func TestQueuesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		size, fit int
	}{"commands": {1, maxWaiting}, "bytes": {maxWaitingBytes / 4, 4}} {
		t.Run(name, func(t *testing.T) {
			q := newQueue()
			for range c.fit + 3 {
				q.Offer(Command{Input: make([]byte, c.size)})
			}
			if q.dropCount() != 3 {
				t.Fatalf("%d are dropped", q.dropCount())
			}
			for range 2 {
				if got, err := q.Take(t.Context()); err != nil || len(got.Input) != c.size {
					t.Fatal(len(got.Input), err)
				}
				q.Offer(Command{Input: make([]byte, c.size)})
			}
			if q.dropCount() != 3 {
				t.Errorf("%d are dropped, though there was room", q.dropCount())
			}
		})
	}
	q := newQueue()
	q.Offer(Command{Input: make([]byte, maxWaitingBytes+1)})
	if q.dropCount() != 1 {
		t.Error("one that is larger than all may be is taken")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := q.Take(ended); err == nil {
		t.Error("there is a command in an empty queue")
	}
}

// TestQueueCopiesBuffers checks that the queue does not keep the caller's buffers.
func TestQueueCopiesBuffers(t *testing.T) {
	q := newQueue()
	in, out := []byte("input"), []byte("output")
	q.Offer(Command{Entity: sharding.EntityID{Type: "a", ID: "b"}, Input: in, Output: out, Seed: 7})
	clear(in)
	clear(out)
	got, err := q.Take(t.Context())
	if err != nil || string(got.Input) != "input" || string(got.Output) != "output" || got.Seed != 7 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestQueueIsConcurrent checks that several executors can use a queue
// concurrently.
func TestQueueIsConcurrent(t *testing.T) {
	q := newQueue()
	const lanes, each = 4, 1000
	var offering sync.WaitGroup
	for range lanes {
		offering.Go(func() {
			for range each {
				q.Offer(Command{Input: []byte("x")})
			}
		})
	}
	done := make(chan struct{})
	go func() { offering.Wait(); close(done) }()
	ctx, cancel := context.WithCancel(t.Context())
	taken := uint64(0)
	go func() { <-done; cancel() }()
	for {
		if _, err := q.Take(ctx); err != nil {
			break
		}
		taken++
	}
	if left := uint64(len(q.waiting)); taken+left+q.dropCount() != lanes*each || uint64(q.bytes) != left {
		t.Errorf("%d taken, %d left in %d bytes, %d dropped", taken, left, q.bytes, q.dropCount())
	}
}

// TestComparedShareIsDeterministic checks that the compared share is about as large as
// requested and deterministic.
func TestComparedShareIsDeterministic(t *testing.T) {
	taken := 0
	for seed := range uint64(100_000) {
		if inShare(seed*0x9e3779b97f4a7c15, 1000) {
			taken++
		}
	}
	if taken < 9000 || taken > 11_000 || inShare(5, 0) || !inShare(9999, 10_000) {
		t.Errorf("%d of 100,000", taken)
	}
}

// TestDecisionsAreCompared checks that Compare reports a difference in every
// aspect of a decision that has an effect.
func TestDecisionsAreCompared(t *testing.T) {
	base := func() *abi.Output {
		return &abi.Output{
			Events: []abi.Event{{Type: []byte("e"), Payload: []byte("p"), Tags: [][]byte{[]byte("t")}}}, Reply: []byte("r"),
			Sends:  []abi.Send{{EntityType: []byte("a"), EntityID: []byte("b"), Command: []byte("c")}},
			Timers: []abi.Timer{{Name: []byte("n"), Due: 5, Command: []byte("c")}},
		}
	}
	rejects := func(code, message string) func(*abi.Output) {
		return func(o *abi.Output) {
			*o = abi.Output{Rejected: true, Reject: abi.Reject{Code: []byte(code), Message: []byte(message)}}
		}
	}
	for i, c := range []struct {
		was, is func(*abi.Output)
		want    Difference
	}{
		{nil, nil, 0},
		{nil, rejects("no", ""), Rejection},
		{rejects("no", ""), nil, Rejection},
		{rejects("no", "a"), rejects("no", "b"), 0},
		{rejects("no", ""), rejects("never", ""), Rejection},
		{nil, func(o *abi.Output) { o.Events[0].Type = []byte("f") }, Events},
		{nil, func(o *abi.Output) { o.Events[0].Payload = []byte("q") }, Events},
		{nil, func(o *abi.Output) { o.Events[0].Payload = []byte("P") }, 0}, // an equivalent payload
		{nil, func(o *abi.Output) { o.Events[0].Tags = nil }, Events},
		{nil, func(o *abi.Output) { o.Events = append(o.Events, o.Events[0]) }, Events},
		{nil, func(o *abi.Output) { o.HasState = true }, Events},
		{nil, func(o *abi.Output) { o.State = []byte("s") }, Events},
		{nil, func(o *abi.Output) { o.Reply = nil }, Reply},
		{nil, func(o *abi.Output) { o.Sends[0].EntityID = []byte("c") }, Messages},
		{nil, func(o *abi.Output) { o.Sends[0].OnReject = []byte("c") }, Messages},
		{nil, func(o *abi.Output) { o.Timers[0].Due++ }, Messages},
		{nil, func(o *abi.Output) { o.Timers = nil }, Messages},
		{nil, func(o *abi.Output) { o.Delete = true }, End},
		{nil, func(o *abi.Output) { o.Passivate = true; o.Reply = nil; o.Sends = nil }, End | Reply | Messages},
	} {
		was, is := base(), base()
		for o, change := range map[*abi.Output]func(*abi.Output){was: c.was, is: c.is} {
			if change != nil {
				change(o)
			}
		}
		if got := Compare(was, is, bytes.EqualFold); got != c.want {
			t.Errorf("case %d: %v, want %v", i, got.Names(), c.want.Names())
		}
	}
	if got := (Rejection | Reply | Fault).Names(); !slices.Equal(got, []string{"rejection", "reply", "fault"}) {
		t.Error(got)
	}
}

// TestTallyListsFirstDifferences checks that all commands are counted and the
// first differing commands are listed.
func TestTallyListsFirstDifferences(t *testing.T) {
	var all Tally
	for i := range 50 {
		all.Add(Example{Command: fmt.Sprint(i), In: Difference(i%2) * (Events | Fault)}, 10, 15)
	}
	all.Drop()
	all.Pass()
	if s := all.Sum(); s.Passed != 1 || s.Compared != 50 || s.Differ != 25 || s.By != [6]uint64{1: 25, 5: 25} || s.Dropped != 1 || s.Fuel != 500 || s.Other != 750 || len(s.Examples) != maxExamples || s.Examples[0].Command != "1" {
		t.Errorf("%+v", s)
	}
}
