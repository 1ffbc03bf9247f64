package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/workload"
)

// probes are callers with one entity in each shard. They measure how long a
// user of a shard waits.
type probes struct {
	t       *testing.T
	h       *history.History
	ctx     context.Context
	stop    context.CancelFunc
	callers sync.WaitGroup
	all     []*probe
}

// probe sends a command, waits for the answer and pauses.
type probe struct {
	shard  int
	entity history.Entity
	mu     sync.Mutex
	acked  []time.Duration // times of the answers, relative to the start of the history
	failed error           // first failure; the client should retry until there is none
}

// sender sends a command and waits for the reply.
type sender func(context.Context, client.Command) (client.Reply, error)

// startProbes starts one probe for each shard.
func startProbes(t *testing.T, c *client.Client, shards int, rest time.Duration) *probes {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ps := &probes{t: t, h: history.New(), ctx: ctx, stop: cancel}
	ps.start("unary", c.Send, 1, shards, rest)
	t.Cleanup(func() { ps.stop(); ps.callers.Wait() })
	return ps
}

// startStream adds a probe for each shard. All of them share one stream and
// send several commands to an entity before the first is answered.
func (ps *probes) startStream(c *client.Client, shards int, rest time.Duration) {
	s := c.Stream(client.StreamOptions{})
	ps.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		_ = s.Close(ctx) // all probes have ended, so an error does not matter
	})
	ps.start("stream", s.Call, 4, shards, rest)
}

func (ps *probes) start(name string, send sender, callers, shards int, rest time.Duration) {
	for shard := 1; shard <= shards; shard++ {
		p := &probe{shard: shard, entity: history.Entity{Type: "counter", ID: inShard(name, "counter", shard, shards)}}
		ps.all = append(ps.all, p)
		for caller := range callers {
			ps.callers.Go(func() { ps.run(p, caller, send, rest) })
		}
	}
}

// inShard returns the ID of an entity that is in the shard.
func inShard(name, entityType string, shard, shards int) string {
	for i := 0; ; i++ {
		id := fmt.Sprintf("%s-%d", name, i)
		if sharding.ShardOf(sharding.EntityID{Type: entityType, ID: id}, uint32(shards)) == sharding.ShardID(shard) {
			return id
		}
	}
}

func (ps *probes) run(p *probe, caller int, send sender, rest time.Duration) {
	for i := 0; ps.ctx.Err() == nil; i++ {
		a := history.Attempt{Entity: p.entity, Name: "add", Number: 1, CommandID: fmt.Sprintf("%s-%d-%d", p.entity.ID, caller, i), Start: ps.h.Now()}
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		reply, err := send(ctx, client.Command{EntityType: a.Entity.Type, EntityID: a.Entity.ID, Name: a.Name, Data: []byte(`{"amount":1}`), ID: a.CommandID})
		cancel()
		a.End = ps.h.Now()
		a.Outcome, a.Reply, a.Sequence, a.EventCount, a.Duplicate = history.OK, string(reply.Data), reply.Sequence, reply.EventCount, reply.Duplicate
		if err != nil {
			a.Outcome, a.Code = history.Failed, err.Error()
			if client.OutcomeUnknown(err) {
				a.Outcome = history.Unknown
			}
		}
		ps.h.Add(a)
		p.mu.Lock()
		if err == nil {
			p.acked = append(p.acked, a.End)
		} else if p.failed == nil {
			p.failed = fmt.Errorf("command %s: %w", a.CommandID, err)
		}
		p.mu.Unlock()
		select {
		case <-time.After(rest):
		case <-ps.ctx.Done():
		}
	}
}

// gaps returns the longest time without an answer in the given interval for
// each selected shard, in ascending order.
func (ps *probes) gaps(from, to time.Duration, pick func(shard int) bool) (out []time.Duration) {
	for _, p := range ps.all {
		if !pick(p.shard) {
			continue
		}
		p.mu.Lock()
		last, longest := from, time.Duration(0)
		for _, at := range p.acked {
			if at > from && at <= to {
				longest = max(longest, at-last)
			}
			if at <= to {
				last = max(last, at)
			}
		}
		p.mu.Unlock()
		out = append(out, max(longest, to-last))
	}
	slices.Sort(out)
	return out
}

// allAnswered reports whether every probe has received an answer after a point
// in time.
func (ps *probes) allAnswered(after time.Duration) bool {
	return ps.answered(after, func(int) bool { return true })
}

// answered is like allAnswered, for the selected shards.
func (ps *probes) answered(after time.Duration, pick func(shard int) bool) bool {
	for _, p := range ps.all {
		if !pick(p.shard) {
			continue
		}
		p.mu.Lock()
		n := len(p.acked)
		ok := n > 0 && p.acked[n-1] > after
		p.mu.Unlock()
		if !ok {
			return false
		}
	}
	return true
}

// noneFailed checks that no command has failed.
func (ps *probes) noneFailed() {
	ps.t.Helper()
	for _, p := range ps.all {
		p.mu.Lock()
		err := p.failed
		p.mu.Unlock()
		if err != nil {
			ps.t.Fatalf("a caller was told: %v", err)
		}
	}
}

// end stops the probes and checks the answers that they received.
func (ps *probes) end(c *client.Client) (events int) {
	ps.t.Helper()
	ps.stop()
	ps.callers.Wait()
	events, err := workload.ReadBack(ps.t.Context(), c, ps.h)
	if err != nil {
		ps.t.Fatal(err)
	}
	return events
}

// quantile returns the q-quantile of ascending values, or 0 if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(time.Millisecond)
}
