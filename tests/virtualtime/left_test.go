package virtualtime

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/config"
)

// A node that is isolated while it leaves is removed without noticing. When it
// reaches the other nodes again, it must report that it has left, even if the
// metadata shard has no leader at that time. A new process with the same data
// directory must report that, too. The node can join with an empty directory.
func TestIsolatedNodeLearnsThatItLeft(t *testing.T) {
	for name, leaderless := range map[string]bool{"with a leader": false, "without a leader": true} {
		t.Run(name, func(t *testing.T) {
			run(t, options{nodes: 4, shards: 3}, func(t *testing.T, w *world) {
				w.found()
				victim := w.others(w.leader(0, 1))[0]
				rest := w.others(victim)
				side := []string{callersHost}
				for _, i := range rest {
					side = append(side, hostOf(i))
				}
				w.net.Partition([]string{hostOf(victim)}, side)
				caller := w.caller(callersHost, false, rest...)
				if err := caller.Leave(t.Context(), string(id(victim))); err != nil {
					t.Fatal(err)
				}
				for _, seen := range rest {
					w.until("it is no member", func() bool { return w.status(victim, seen) == "" })
				}
				if leaderless {
					w.kill(rest[0], rest[1])
				}
				w.net.HealAll()
				w.until("it says that it has left", func() bool { return w.log.said(saysLeft) })
				if leaderless {
					w.start(rest[0], rest[1])
					w.until("every shard is led", func() bool { return w.led(rest[0]) })
				}
				for range 30 {
					time.Sleep(time.Second)
					if s := w.status(victim, rest[0]); s != "" {
						t.Fatalf("it is %s again", s)
					}
				}
				if w.nodes[victim].Ready() {
					t.Error("a node that has left is ready")
				}
				w.kill(victim)
				w.log.forget(saysLeft)
				w.launch(victim)()
				w.until("a new start of it says that it has left", func() bool { return w.log.said(saysLeft) })
				time.Sleep(30 * time.Second)
				if s := w.status(victim, rest[0]); s != "" {
					t.Fatalf("it is %s again", s)
				}
				w.kill(victim)
				w.forget(victim)
				w.start(victim)
				w.until("it is up with an empty directory", func() bool { return w.status(victim, rest[0]) == "up" })
			})
		})
	}
}

// A leaving node that dies and comes back with its directory continues to
// leave, unless it was removed in the meantime.
func TestLeavingNodeThatDiesContinuesToLeave(t *testing.T) {
	run(t, options{nodes: 4, shards: 3}, func(t *testing.T, w *world) {
		w.found()
		victim := w.others(w.leader(0, 1))[0]
		rest := w.others(victim)
		w.kill(rest[2]) // no other node can take a replica of the victim, so it cannot leave yet
		caller := w.caller(callersHost, false, rest[0], rest[1], victim)
		if err := caller.Leave(t.Context(), string(id(victim))); client.CodeOf(err) != connect.CodeDeadlineExceeded {
			t.Fatalf("it leaves while nothing can take its replicas: %v", err)
		}
		w.kill(victim)
		time.Sleep(2 * time.Second)
		w.start(victim)
		time.Sleep(10 * time.Second)
		w.start(rest[2])
		w.until("it is no member", func() bool { return w.status(victim, rest[0]) == "" })
		w.until("it says that it has left", func() bool { return w.log.said(saysLeft) })
	})
}

// The link between the coordinator and one other node is cut for longer than
// dead-after. A node that reaches all others must become the coordinator, and
// no node may lose a replica.
func TestNodeCutOffOnlyFromCoordinatorStays(t *testing.T) {
	run(t, options{nodes: 4, shards: 4, config: func(_ int, c *config.Config) { c.DeadAfter = 30 * time.Second }}, func(t *testing.T, w *world) {
		w.loaded(pace)
		coordinator := w.leader(0, 1)
		victim := w.others(coordinator)[0]
		seen := w.others(coordinator)[1]
		w.net.Cut(hostOf(coordinator), hostOf(victim))
		w.net.Cut(hostOf(victim), hostOf(coordinator))
		w.until("another node coordinates", func() bool { l := w.leader(0, seen); return l != coordinator && l != 0 })
		w.load.SetPause(10 * pace)
		for range 60 {
			time.Sleep(time.Second)
			for _, i := range []int{victim, coordinator} {
				if s := w.status(i, seen); s != "up" {
					t.Fatalf("%s is %s", id(i), s)
				}
			}
		}
		w.load.SetPause(pace)
		w.net.HealAll()
		w.judge()
	})
}

// A node that has left gets no error from the coordinator except that its
// reports are rejected. It must find out that it has left, although its own
// replica of the metadata shard still knows a leader. A drain of the node
// succeeds whether it is sent to the node itself, before or after it has found
// out, or to another node. Otherwise a hook that drains the node before it
// stops would fail.
func TestLeavingNodeReportsThatItHasLeft(t *testing.T) {
	run(t, options{nodes: 4, shards: 3}, func(t *testing.T, w *world) {
		w.found()
		victim := w.others(w.leader(0, 1))[0]
		if err := w.caller(callersHost, false, w.others(victim)...).Leave(t.Context(), string(id(victim))); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for _, called := range []int{victim, w.others(victim)[0]} {
				if moved, err := w.beside(called).Drain(t.Context(), string(id(victim))); moved != 0 || err != nil {
					t.Errorf("drain through %s: %d moved, %v", id(called), moved, err)
				}
			}
			w.until("it says that it has left", func() bool { return w.log.said(saysLeft) })
		}
		if _, err := w.beside(w.others(victim)[0]).Drain(t.Context(), "n9"); !client.IsNotFound(err) {
			t.Errorf("drain of a node that was never a member: %v", err)
		}
	})
}
