package entity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// clockmaker is a guest whose commands each set ten timers. If repeats is
// set, every command sets the same ten timers; otherwise each sets new ones.
type clockmaker struct {
	counter
	w *clockShop
}

func (g *clockmaker) Handle(h uint64, _ []byte, _ Env) ([]byte, error) {
	g.sums[h]++
	out := abi.AppendEvent(nil, "set", []byte("{}"))
	for i := range 10 {
		if !g.w.repeats {
			i += 10 * g.w.set
		}
		out = abi.AppendSetTimer(out, abi.Timer{Name: fmt.Appendf(nil, "t%d", i), Due: 1 << 62, Command: []byte("ring")})
	}
	g.w.set++
	return out, nil
}

// clockShop is a log that knows the timers of its only entity.
type clockShop struct {
	*bench
	timers  map[string]bool
	set     int // commands handled by the guest
	repeats bool
	out     []flight
}

func (c *clockShop) Propose(_ sharding.ShardID, fence sharding.Term, n uint64, data []byte) error {
	c.out = append(c.out, flight{fence, n, data})
	return nil
}

func (c *clockShop) TimerRoom(_ sharding.ShardID, _ sharding.EntityID, names [][]byte) (has, added int) {
	for _, name := range names {
		if !c.timers[string(name)] {
			added++
		}
	}
	return len(c.timers), added
}

func (c *clockShop) commit(t *testing.T) {
	for _, f := range c.out {
		e, err := journal.DecodeEntry(f.data)
		if err != nil {
			t.Fatal(err)
		}
		for b := e.Body; len(b) > 0; {
			raw, rest, err := journal.SplitRecord(b)
			var r journal.Record
			if err = errors.Join(err, r.Decode(raw)); err != nil {
				t.Fatal(err)
			}
			b = rest
			for ops := r.Section(journal.SectionTimers); len(ops) > 0; {
				op, more, err := journal.NextTimerOp(ops)
				if err != nil {
					t.Fatal(err)
				}
				c.timers[string(op.Name)], ops = true, more
			}
		}
		c.core.event(&coreEvent{Kind: eventProposalDone, Shard: worldShard, Term: f.term, Number: f.proposal})
	}
	c.out = nil
	for _, r := range c.rounds {
		c.core.event(&coreEvent{Kind: eventReadConfirmed, Shard: worldShard, Number: r})
	}
	c.rounds = nil
}

func (c *clockShop) ask(n int) *request.Request {
	r := &request.Request{Kind: request.Command, Shard: worldShard, Entity: sharding.EntityID{Type: "t", ID: "e"}, Name: "set",
		ID: journal.CommandID(fmt.Sprint("c-", n)), ExpectedSequence: request.NoExpectation, Done: c.bench}
	c.core.submit(c.core.now, []*request.Request{r})
	c.core.runTurns()
	c.core.endTurn()
	return r
}

// fewTimers allows 30 timers of an entity.
type fewTimers struct{ defaultSettings }

func (fewTimers) MaxTimers(string) int { return 30 }

// TestTimersOfAnEntityAreBounded checks that a command that would exceed the
// entity's limit of timers is rejected with the name of the limit, and that a
// command that sets existing timers again is executed. While undecided
// commands of the entity may add timers, the rejection is temporary.
func TestTimersOfAnEntityAreBounded(t *testing.T) {
	c := &clockShop{bench: &bench{}, timers: map[string]bool{}}
	typ := &Type{Name: "t", Instantiate: func(context.Context) (Guest, error) {
		return &clockmaker{counter{sums: map[uint64]int64{}}, c}, nil
	}}
	c.core = newCore(Options{Journal: c, Histories: c, Types: oneType{typ}, Settings: fewTimers{}}, c.bench)
	c.bench.core = c.core
	c.core.now = time.Unix(1_700_000_000, 0)
	c.core.event(&coreEvent{Kind: eventLeaderChanged, Shard: worldShard, Term: 1, Self: true})
	c.core.event(&coreEvent{Kind: eventTermStarted, Shard: worldShard, Term: 1})
	for n := range 3 {
		r := c.ask(n)
		if c.commit(t); r.Result.Err != nil {
			t.Fatal(r.Result.Err)
		}
	}
	over := c.ask(3)
	c.commit(t)
	why, ok := errors.AsType[*request.RejectedError](over.Result.Err)
	if !ok || why.Code != "out_of_range" || !strings.HasPrefix(why.Message, "max-timers: ") || len(c.timers) != 30 {
		t.Fatalf("%d timers: %v", len(c.timers), over.Result.Err)
	}
	c.repeats = true
	first, second := c.ask(4), c.ask(5)
	if c.commit(t); first.Result.Err != nil && !errors.Is(second.Result.Err, request.ErrBusy) {
		t.Fatalf("timers are set again: %v, %v", first.Result.Err, second.Result.Err)
	}
	third := c.ask(6)
	if c.commit(t); first.Result.Err != nil || third.Result.Err != nil {
		t.Fatalf("timers are set again: %v, %v", first.Result.Err, third.Result.Err)
	}
}

// TestRowsPerEntryAreBounded checks that commands that set and send as much
// as possible share an entry with only a few other commands, however few
// bytes they need.
func TestRowsPerEntryAreBounded(t *testing.T) {
	w := quiet(t)
	w.core.opts.ClusterVersion = maxLevel
	for i := range 128 {
		w.raw = abi.AppendCancelTimer(w.raw, fmt.Sprint(i))
	}
	var reqs []*request.Request
	for i := range 12 {
		reqs = append(reqs, &request.Request{Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: fmt.Sprint(i)}, Name: "raw", Payload: []byte("1"),
			ID: journal.CommandID(fmt.Sprint(i)), Shard: worldShard, ExpectedSequence: request.NoExpectation, Done: &asked{}})
	}
	w.core.submit(w.now, reqs)
	for range 100 { // until all entities are loaded
		w.chunk()
	}
	w.core.runTurns()
	w.core.endTurn()
	if want := 12 * 128 / batchRows; len(w.flights) != want {
		t.Errorf("12 commands in %d entries, want %d", len(w.flights), want)
	}
}
