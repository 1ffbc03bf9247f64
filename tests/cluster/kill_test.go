package cluster

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
)

var (
	killRounds = flag.Int("rounds", 3, "how often the node is killed")
	killSeed   = flag.Uint64("seed", 0, "of the moments of the kills; 0 draws one")
)

// A node is killed again and again while callers, one command after another,
// and a stream, many at a time, send to it. What it acknowledged must be there
// each time, once and in order.
func TestKillUnderLoad(t *testing.T) {
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -rounds %d -seed %d", *killRounds, seed)
	rng := rand.New(rand.NewPCG(seed, 0))

	n := newNode(t)
	c := n.client()
	n.push(t.Context(), c, "chain")
	h := newHistory()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var senders sync.WaitGroup
	for i := range 4 {
		senders.Go(func() { sendOneByOne(ctx, t, c, h, fmt.Sprintf("caller-%d", i)) })
	}
	senders.Go(func() { sendStream(ctx, t, c, h) })

	for range *killRounds {
		before := h.count()
		n.await("the load goes on", func() bool { return h.count() > before+300 })
		time.Sleep(time.Duration(rng.Int64N(int64(30 * time.Millisecond)))) // so that kills hit every part of a turn
		n.kill()
		n.start()
	}
	before := h.count()
	n.await("the load goes on after the last kill", func() bool { return h.count() > before+300 })
	stop()
	senders.Wait()
	h.check(t.Context(), t, c)

	n.stop()
	n.verify()
	n.start()
	h.check(t.Context(), t, c)
	h.checkTheCheck(t, c)
	t.Logf("%d commands acknowledged over %d kills", h.count(), *killRounds)
}

// checkTheCheck plants what the checks are for; each must be found.
func (h *history) checkTheCheck(t *testing.T, c *client.Client) {
	t.Helper()
	const entity = "caller-0"
	truth := h.acks[entity]
	for name, lie := range map[string]func(acks map[string]acked, failed map[string]error){
		"a lost command":       func(acks map[string]acked, _ map[string]error) { acks["never"] = acked{} },
		"a command moved":      func(acks map[string]acked, _ map[string]error) { acks[entity+"-1"] = acks[entity+"-0"] },
		"a failure that wrote": func(_ map[string]acked, failed map[string]error) { failed[entity+"-0"] = context.Canceled },
	} {
		told := newHistory()
		told.acks[entity], told.failed[entity] = maps.Clone(truth), map[string]error{}
		lie(told.acks[entity], told.failed[entity])
		if len(told.faults(t.Context(), c)) != 1 {
			t.Errorf("%s is not found", name)
		}
	}
}

// sendOneByOne adds links to one chain, each after the reply to the one
// before. The client tries again under the same id while the node is away.
func sendOneByOne(ctx context.Context, t *testing.T, c *client.Client, h *history, entity string) {
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprintf("%s-%d", entity, i)
		reply, err := c.Send(ctx, client.Command{EntityType: "chain", EntityID: entity, Name: "link", Data: fmt.Appendf(nil, `{"n":%d}`, i), ID: id})
		if ctx.Err() != nil {
			return
		}
		h.record(t, entity, id, i, reply, err)
		if err != nil {
			t.Errorf("%s: %v", id, err)
			return
		}
	}
}

// sendStream keeps a stream full of links to a few chains.
func sendStream(ctx context.Context, t *testing.T, c *client.Client, h *history) {
	s := c.Stream(client.StreamOptions{Outstanding: 128, ResendFor: patience})
	for i := 0; ctx.Err() == nil; i++ {
		entity := fmt.Sprintf("stream-%d", i%8)
		id := fmt.Sprintf("s-%d", i)
		cmd := client.Command{EntityType: "chain", EntityID: entity, Name: "link", Data: fmt.Appendf(nil, `{"n":%d}`, i), ID: id}
		err := s.Send(ctx, cmd, func(reply client.Reply, err error) { h.record(t, entity, id, i, reply, err) })
		if err != nil && ctx.Err() == nil {
			t.Errorf("stream: %v", err)
			break
		}
	}
	closing, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(closing); err != nil {
		t.Errorf("close the stream: %v", err)
	}
}
