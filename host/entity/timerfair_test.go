package entity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// typesByName are activations by name.
type typesByName map[string]*Type

func (m typesByName) Lookup(name string) *Type { return m[name] }

// trapping is a guest whose commands trap.
type trapping struct{ counter }

func (*trapping) Handle(uint64, []byte, Env) ([]byte, error) { return nil, errors.New("trap") }

// sending is a guest whose commands send two messages.
type sending struct{ counter }

func (g *sending) Handle(uint64, []byte, Env) ([]byte, error) {
	g.out = g.out[:0]
	for range 2 {
		g.out = abi.AppendSend(g.out, abi.Send{EntityType: []byte("t"), EntityID: []byte("e"), Command: []byte("add")})
	}
	return g.out, nil
}

// TestFailingTimersDoNotDelayOthers checks that the timers of other types fire
// within 4 s, in the same shard and in another shard, although thousands
// of earlier timers of one type cannot fire, for each reason that keeps timers
// from firing.
func TestFailingTimersDoNotDelayOthers(t *testing.T) {
	const rate, healthy = 3500, 20
	plain := func() Guest { return &counter{sums: map[uint64]int64{}} }
	for _, c := range []struct {
		name     string
		entities int
		timers   int // of each entity
		typ      Type
		guest    func() Guest
		owes     bool // the type is in debt
	}{
		{name: "quarantined entity", entities: 1, timers: 4000, guest: func() Guest { return &trapping{counter{sums: map[uint64]int64{}}} }},
		{name: "faults of many entities", entities: 4000, timers: 2, guest: func() Guest { return &trapping{counter{sums: map[uint64]int64{}}} }},
		{name: "unknown command of an entity", entities: 1, timers: 5000, typ: Type{TypeInputs: TypeInputs{Commands: map[string]bool{"other": true}}}, guest: plain},
		{name: "unknown command of many entities", entities: 5000, timers: 1, typ: Type{TypeInputs: TypeInputs{Commands: map[string]bool{"other": true}}}, guest: plain},
		{name: "rate", entities: 350, timers: 1, typ: Type{Rate: NewRate(1)}, guest: plain},
		{name: "rate, many timers", entities: 1, timers: 5000, typ: Type{Rate: NewRate(1)}, guest: plain},
		{name: "debt", entities: 5000, timers: 1, guest: plain, owes: true},
		{name: "full outbox", entities: 5000, timers: 1, guest: func() Guest { return &sending{counter{sums: map[uint64]int64{}}} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := pacedAlarms(t, 2, rate)
			a.core.opts.EntitySends, a.core.decider.opts.EntitySends = 1, 1
			bad := c.typ
			bad.Name, bad.Digest = "bad", journal.Digest{1}
			bad.Instantiate = func(context.Context) (Guest, error) { return c.guest(), nil }
			good := a.core.opts.Types.(oneType).t
			a.core.opts.Types = typesByName{"bad": &bad, "t": good}
			start := a.core.now
			for e := range c.entities {
				for i := range c.timers {
					a.timers[1] = append(a.timers[1], journal.Timer{
						Entity: sharding.EntityID{Type: "bad", ID: fmt.Sprint(e)}, Name: fmt.Sprint(i), Due: start.Add(time.Duration(i) * time.Microsecond).UnixNano(), Command: []byte("ring"),
					})
				}
			}
			for shard := range sharding.ShardID(2) {
				for i := range healthy {
					a.timers[shard+1] = append(a.timers[shard+1], journal.Timer{
						Entity: sharding.EntityID{Type: "t", ID: fmt.Sprint(shard, "-", i)}, Name: "wake", Due: start.Add(time.Second).UnixNano(), Command: []byte("ring"),
					})
				}
			}
			slices.SortFunc(a.timers[1], func(x, y journal.Timer) int { return cmp.Compare(x.Due, y.Due) })
			if c.owes {
				a.core.timers.Owe("bad", 1<<30, 0)
			}
			a.lead(1)
			left := func() (n int) {
				for _, ts := range a.timers {
					for _, timer := range ts {
						if timer.Entity.Type == "t" {
							n++
						}
					}
				}
				return n
			}
			for n := 0; left() > 0; n++ {
				if n > 5000 {
					t.Fatalf("%d of %d timers of the other type have not fired 4 s after they were due; %+v", left(), 2*healthy, a.core.timers.Counts())
				}
				a.step(a.other(n))
			}
		})
	}
}
