package virtualtime

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

var seed = flag.Uint64("seed", 0, "of the loads and of the random faults; 0 draws one")

// TestMain draws the seed, and removes the compiled modules at the end.
func TestMain(m *testing.M) {
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	code := testkit.Main(m)
	os.RemoveAll(compiled.dir)
	os.Exit(code)
}

// long skips a test that takes minutes of virtual time in short mode, because
// it takes minutes of real time under the race detector.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long under the race detector")
	}
}

// failOver bounds the time that a shard may be without a leader that serves.
const failOver = 10 * time.Second

// Other nodes take over the shards of a killed node. When the node returns, it
// still has everything that it acknowledged.
func TestLeaderIsKilled(t *testing.T) {
	run(t, options{nodes: 3, shards: 4}, func(t *testing.T, w *world) {
		w.loaded(pace)
		victim := w.leader(1, 1)
		w.kill(victim)
		other := w.others(victim)[0]
		w.within(failOver, "the others lead every shard", func() bool { return w.led(other) })
		w.acknowledged(100)
		w.start(victim)
		w.judge()
	})
}

// Nodes notice the end of a process before the failure timeout, and elections
// start at once. In all other respects, they consider the node alive until the
// failure timeout.
func TestEndedProcessIsDetectedImmediately(t *testing.T) {
	run(t, options{nodes: 3, shards: 4}, func(t *testing.T, w *world) {
		w.loaded(4 * pace)
		w.acknowledged(30)
		time.Sleep(4 * time.Second) // wait until the links are old enough
		victim := w.leader(1, 1)
		w.kill(victim)
		other := w.others(victim)[0]
		took := w.within(silence-200*time.Millisecond, "the others lead every shard", func() bool { return w.led(other) })
		t.Logf("led by others after %v", took)
		w.acknowledged(30)
		w.start(victim)
		w.judge()
	})
}

// silence is the failure timeout: a node is suspected if nothing arrives from
// it for this time.
const silence = 700 * time.Millisecond

// The node of the coordinator can be lost like any other node.
func TestCoordinatorIsKilled(t *testing.T) {
	run(t, options{nodes: 3, shards: 3}, func(t *testing.T, w *world) {
		w.loaded(pace)
		victim := w.leader(0, 1)
		w.kill(victim)
		other := w.others(victim)[0]
		w.within(failOver, "the others lead every shard", func() bool { return w.led(other) })
		w.start(victim)
		w.judge()
	})
}

// refusedSoon limits the time in which a node without a quorum must reject a
// call.
const refusedSoon = 3 * time.Second

// An isolated leader answers no call. The other nodes continue without it, and
// commands that it did not acknowledge take effect at most once.
func TestIsolatedLeaderAnswersNobody(t *testing.T) {
	run(t, options{nodes: 3, shards: 4}, func(t *testing.T, w *world) {
		w.loaded(pace)
		old := w.leader(1, 1)
		entity := w.heldBy(old)
		if _, err := w.beside(old).Send(t.Context(), add(entity, 1)); err != nil {
			t.Fatal(err)
		}
		others := w.others(old)
		w.net.Partition([]string{hostOf(old)}, []string{hostOf(others[0]), hostOf(others[1]), callersHost})
		if r, err := w.attempt(old, add(entity, 10)); err == nil {
			t.Errorf("the leader acknowledged without a quorum: %+v", r)
		}
		w.within(failOver, "the others lead every shard", func() bool { return w.led(others[0]) })
		if _, err := w.beside(others[0]).Send(t.Context(), add(entity, 100)); err != nil {
			t.Errorf("the majority does not serve: %v", err)
		}
		began := time.Now()
		if a, err := w.beside(old).Query(w.soon(), total(entity)); err == nil {
			t.Errorf("%v after the cut the old leader answered %s", time.Since(began), a.Data)
		}
		if r, err := w.attempt(old, add(entity, 1000)); err == nil {
			t.Errorf("the old leader acknowledged: %+v", r)
		} else if code := client.CodeOf(err); code != connect.CodeUnavailable && code != connect.CodeDeadlineExceeded {
			t.Errorf("the old leader said %v", err)
		}
		w.load.SetPause(10 * pace)
		time.Sleep(20 * time.Second)
		w.net.HealAll()
		w.settled()
		w.judge()
		a, err := w.beside(old).Query(t.Context(), total(entity))
		if err != nil {
			t.Error(err)
		}
		for _, i := range others {
			b, err := w.beside(i).Query(t.Context(), total(entity))
			if err != nil || string(a.Data) != string(b.Data) {
				t.Errorf("%s says %s, %s says %s, %v", id(old), a.Data, id(i), b.Data, err)
			}
		}
	})
}

// attempt sends one command through a node and waits at most refusedSoon.
func (w *world) attempt(through int, c client.Command) (client.Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), refusedSoon)
	defer cancel()
	return w.beside(through).Send(ctx, c)
}

// Only one direction of a leader's links is cut. A leader that sends but does
// not receive steps down, and a leader that receives but does not send is
// replaced.
func TestOneWayPartitionsOfLeader(t *testing.T) {
	for name, cut := range map[string]func(w *world, from, to string){
		"hears nobody":   func(w *world, node, other string) { w.net.Cut(other, node) },
		"nobody hears":   func(w *world, node, other string) { w.net.Cut(node, other) },
		"silent at last": func(w *world, node, other string) { w.net.Cut(node, other); w.net.Cut(other, node) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, options{nodes: 3, shards: 3}, func(t *testing.T, w *world) {
				w.loaded(pace)
				old := w.leader(1, 1)
				others := w.others(old)
				for _, i := range others {
					cut(w, hostOf(old), hostOf(i))
				}
				w.within(2*failOver, "the others lead every shard", func() bool {
					return w.led(others[0]) && w.leader(1, others[0]) != old
				})
				w.acknowledged(50)
				w.net.HealAll()
				w.settled()
				w.judge()
			})
		})
	}
}

// A node that is frozen for half a minute has lost its leaderships when it
// continues, and must notice the loss before it answers any call.
func TestLeaderIsFrozen(t *testing.T) {
	run(t, options{nodes: 3, shards: 4}, func(t *testing.T, w *world) {
		w.loaded(pace)
		old := w.leader(1, 1)
		entity, others := w.heldBy(old), w.others(old)
		w.net.Host(hostOf(old)).Freeze()
		w.within(failOver, "the others lead every shard", func() bool { return w.led(others[0]) })
		if _, err := w.beside(others[0]).Send(t.Context(), add(entity, 100)); err != nil {
			t.Error(err)
		}
		w.load.SetPause(10 * pace)
		time.Sleep(30 * time.Second)
		w.net.Host(hostOf(old)).Thaw()
		a, err := w.beside(old).Query(w.soon(), total(entity))
		if err == nil && string(a.Data) != `{"total":100}` {
			t.Errorf("the old leader answers %s", a.Data)
		}
		w.settled()
		w.judge()
	})
}

// All nodes lose their power at once.
func TestAllNodesLosePower(t *testing.T) {
	run(t, options{nodes: 3, shards: 4}, func(t *testing.T, w *world) {
		w.loaded(pace)
		for range 2 {
			w.kill(w.all()...)
			w.start(w.all()...)
			w.acknowledged(50)
		}
		w.judge()
	})
}

// Two of three nodes die. The third node serves nothing until one of the two is
// back.
func TestClusterWithoutMajorityServesNothing(t *testing.T) {
	run(t, options{nodes: 3, shards: 3}, func(t *testing.T, w *world) {
		w.loaded(pace)
		left := w.leader(0, 1)
		dead := w.others(left)
		w.kill(dead...)
		time.Sleep(10 * time.Second)
		if r, err := w.attempt(left, add("x", 1)); err == nil {
			t.Errorf("one of three acknowledged: %+v", r)
		}
		w.start(dead[0])
		w.within(2*failOver, "two of three lead every shard", func() bool { return w.led(left) })
		w.acknowledged(50)
		w.start(dead[1])
		w.judge()
	})
}
