package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// subscribeRest is the pause between two commands of a probe.
const subscribeRest = 10 * time.Millisecond

// follower follows the events of a type, and keeps the received events and the
// cursor after them.
type follower struct {
	mu     sync.Mutex
	order  map[string][]uint64 // sequences by entity, in the order received
	events int
	cursor string
	err    error
}

// run follows the type from its cursor until ctx ends.
func (f *follower) run(ctx context.Context, c *client.Client) {
	for e, err := range c.Subscribe(ctx, client.Subscription{EntityType: "counter", Cursor: f.cursor, Follow: true}) {
		f.mu.Lock()
		if err != nil {
			if ctx.Err() == nil {
				f.err = err
			}
			f.mu.Unlock()
			return
		}
		f.order[e.EntityID] = append(f.order[e.EntityID], e.Sequence)
		f.events++
		f.cursor = e.Cursor()
		f.mu.Unlock()
	}
}

func (f *follower) seen(t *testing.T) int {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		t.Fatalf("the follower was told: %v", f.err)
	}
	return f.events
}

// TestSubscribersReceiveEveryEventOnce checks that followers receive each event once, in
// the order of its entity, while leaders are killed, shards are moved and a
// follower reconnects to other nodes. The streams must equal the journals.
func TestSubscribersReceiveEveryEventOnce(t *testing.T) {
	testkit.Long(t, "long")
	cluster := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: shards})
	cluster.Push("counter")
	c := cluster.Client(client.Options{Timeout: testkit.Patience})
	ps := startProbes(t, c, shards, subscribeRest)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	steady, anew := &follower{order: map[string][]uint64{}}, &follower{order: map[string][]uint64{}}
	running.Go(func() { steady.run(ctx, cluster.Client(client.Options{Timeout: testkit.Patience})) })
	running.Go(func() {
		for ctx.Err() == nil && anew.err == nil {
			generation, end := context.WithTimeout(ctx, 300*time.Millisecond)
			anew.run(generation, c)
			end()
		}
	})
	for i := range 2 {
		for shard := uint32(1); shard <= 3; shard++ {
			node := cluster.Node((cluster.Leader(shard) + 1) % nodes).ID()
			// A move that times out still continues.
			if err := c.MoveShard(t.Context(), shard, node); err != nil && client.CodeOf(err) != connect.CodeDeadlineExceeded {
				t.Fatal(err)
			}
		}
		victim := cluster.Leader(uint32(4 + i))
		cluster.Kill(victim)
		killed := ps.h.Now()
		cluster.Await("every probe is answered", func() bool { return ps.allAnswered(killed) })
		cluster.Node(victim).Start()
	}
	events := ps.end(c)
	cluster.Await("the followers have all", func() bool { return steady.seen(t) >= events && anew.seen(t) >= events })
	stop()
	running.Wait()
	for name, f := range map[string]*follower{"steady": steady, "begun anew": anew} {
		if f.events != events {
			t.Errorf("%s: %d of %d events", name, f.events, events)
		}
		for _, p := range ps.all {
			for i, sequence := range f.order[p.entity.ID] {
				if sequence != uint64(i+1) {
					t.Fatalf("%s: event %d of %s came as number %d", name, sequence, p.entity.ID, i+1)
				}
			}
		}
		if err := journalsEqual(t.Context(), c, f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	once := &follower{order: map[string][]uint64{}}
	for e, err := range c.Subscribe(t.Context(), client.Subscription{EntityType: "counter"}) {
		if err != nil {
			t.Fatal(err)
		}
		once.order[e.EntityID] = append(once.order[e.EntityID], e.Sequence)
		once.events++
	}
	if err := journalsEqual(t.Context(), c, once); err != nil || once.events != events {
		t.Errorf("read once: %d of %d events, %v", once.events, events, err)
	}
	t.Logf("%d events of %d shards, each once to three readers", events, shards)
}

// journalsEqual compares the events that a follower received with the
// histories.
func journalsEqual(ctx context.Context, c *client.Client, f *follower) error {
	for id, got := range f.order {
		n := 0
		for e, err := range c.ReadEvents(ctx, client.EventRange{EntityType: "counter", EntityID: id}) {
			if err != nil {
				return err
			}
			if n >= len(got) || got[n] != e.Sequence {
				return fmt.Errorf("%s: the journal has event %d at place %d", id, e.Sequence, n)
			}
			n++
		}
		if n != len(got) {
			return fmt.Errorf("%s: %d events came, the journal has %d", id, len(got), n)
		}
	}
	return nil
}
