package forward

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// Two nodes send ordered commands while leaders move between three nodes and
// connections are cut. Each command must take effect once, in the order of its
// sender.
func TestCommandsOverMovingLeadersRunOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := rpctest.New() // the common log of all nodes
	defer w.Close()
	l := newLeads("n1")
	names := []sharding.NodeID{"n1", "n2", "n3"}
	var sites []*site
	for _, name := range names {
		sites = append(sites, newSite(t, name, w, l))
	}
	net := newNetwork(t, sites...)
	var routers []*router.Router
	for _, s := range sites[:2] {
		c := newTestClient(t, net, func(o *Options) { o.Self = s.name })
		r, err := router.New(router.Options{Self: s.name, Shards: testShards, Local: s.gate, Remote: c, Leaders: view{l, s.name}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := r.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		routers = append(routers, r)
	}
	stop := make(chan struct{})
	var chaos sync.WaitGroup
	chaos.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rng.IntN(3000)) * time.Microsecond):
			}
			shard := sharding.ShardID(1 + rng.IntN(testShards))
			switch n := rng.IntN(10); {
			case n < 5:
				l.move(shard, names[rng.IntN(len(names))])
			case n < 7:
				l.move(shard, "")
			default:
				sites[rng.IntN(len(sites))].conns.cut()
			}
		}
	})
	const entities, each = 6, 1500
	var senders sync.WaitGroup
	var failed atomic.Int64
	for i, r := range routers {
		senders.Go(func() {
			for e := range entities {
				reqs := make([]*request.Request, each)
				done := collect(each, func(q *request.Request) {
					if q.Result.Err != nil {
						failed.Add(1)
						t.Logf("a command failed: %v", q.Result.Err)
					} else if q.Result.Node == "" {
						t.Error("a result without a node")
					}
				})
				for k := range reqs {
					reqs[k] = command(fmt.Sprint("s", i, "e", e), "add", amount(k))
					reqs[k].Done = done
				}
				for k := 0; k < each; k += 5 {
					r.Submit(reqs[k:min(k+5, each)])
					if k%100 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
				done.wait(t)
			}
		})
	}
	settle := make(chan struct{})
	go func() { senders.Wait(); close(settle) }()
	for running := true; running; {
		select {
		case <-settle:
			running = false
		case <-time.After(20 * time.Millisecond):
			// appoint a leader, instead of waiting until the chaos does
			l.move(sharding.ShardID(1+time.Now().UnixNano()%testShards), "n3")
		}
	}
	close(stop)
	chaos.Wait()
	for i := range routers {
		for e := range entities {
			id := fmt.Sprint("s", i, "e", e)
			last := -1
			ran := w.Commands(sharding.EntityID{Type: rpctest.Counter, ID: id})
			for _, payload := range ran {
				var k int
				if _, err := fmt.Sscanf(payload, `{"amount":%d}`, &k); err != nil || k <= last {
					t.Fatalf("entity %s ran %s after number %d", id, payload, last)
				}
				last = k
			}
			if failed.Load() == 0 && len(ran) != each {
				t.Errorf("entity %s ran %d commands", id, len(ran))
			}
		}
	}
	if n := failed.Load(); n > entities*each/10 {
		t.Errorf("%d commands failed", n)
	}
}
