package virtualtime

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

// A drained node leads nothing, and no call fails.
func TestDrain(t *testing.T) {
	run(t, options{nodes: 3, shards: 6}, func(t *testing.T, w *world) {
		w.loaded(pace)
		if _, err := w.client().Drain(t.Context(), "n2"); err != nil {
			t.Fatal(err)
		}
		leads := func(i int) (n int) {
			for _, s := range w.shards(1) {
				if s.GetShardId() != 0 && w.place(s.GetLeader()) == i {
					n++
				}
			}
			return n
		}
		w.until("n2 leads nothing", func() bool { return leads(2) == 0 })
		w.load.SetPause(10 * pace)
		time.Sleep(10 * time.Second)
		w.load.SetPause(pace)
		if n := leads(2); n != 0 {
			t.Errorf("a drained node leads %d shards again", n)
		}
		if err := w.client().Resume(t.Context(), "n2"); err != nil {
			t.Fatal(err)
		}
		w.until("n2 leads again", func() bool { return leads(2) > 0 })
		if n := w.load.Failed(); n != 0 {
			t.Errorf("%d calls failed", n)
		}
		w.judge()
	})
}

// A node that stays down longer than dead-after is replaced. When it returns,
// it becomes a member again, with replicas that have new IDs.
func TestNodeIsReplaced(t *testing.T) {
	long(t)
	run(t, options{nodes: 4, shards: 3}, func(t *testing.T, w *world) {
		w.loaded(pace)
		victim := w.others(w.leader(0, 1))[0]
		w.load.SetPause(4 * time.Second)
		w.kill(victim)
		seen := w.others(victim)[0]
		time.Sleep(4 * time.Minute)
		if w.voted(seen, 3, victim) {
			t.Errorf("%s was replaced before its time", id(victim))
		}
		time.Sleep(2 * time.Minute)
		w.until("its replicas are elsewhere", func() bool { return w.voted(seen, 3, victim) })
		w.load.SetPause(pace)
		w.acknowledged(50)
		w.start(victim)
		w.settled()
		w.until("it is up again", func() bool { return w.status(victim, seen) == "up" })
		w.judge()
	})
}

// A running node that an operator marks as down is replaced and stays out until
// it is restarted.
func TestDownedNodeStaysOutUntilRestart(t *testing.T) {
	run(t, options{nodes: 4, shards: 6}, func(t *testing.T, w *world) {
		w.loaded(pace)
		coordinator := w.leader(0, 1)
		victim := w.others(coordinator)[0]
		seen := w.others(victim)[0]
		if err := w.client().Down(t.Context(), string(id(victim))); err != nil {
			t.Fatal(err)
		}
		w.until("its replicas are elsewhere", func() bool { return w.voted(seen, 3, victim) })
		w.until("it is no member", func() bool { return w.status(victim, seen) == "" })
		w.until("it says so", func() bool { return w.log.said(saysPutDown) })
		w.load.SetPause(10 * pace)
		for range 60 {
			time.Sleep(time.Second)
			if s := w.status(victim, seen); s != "" {
				t.Fatalf("the node is %s again", s)
			}
		}
		if w.nodes[victim].Ready() {
			t.Error("a node that was put down is ready")
		}
		w.load.SetPause(pace)
		w.kill(victim)
		w.start(victim)
		w.until("a new start of it is up", func() bool { return w.status(victim, seen) == "up" })
		w.until("it is ready", func() bool { return w.nodes[victim].Ready() })
		if n := w.load.Failed(); n != 0 {
			t.Errorf("%d calls failed", n)
		}
		w.judge()
	})
}

// A watcher receives changes of settings in order, even if the node that it
// watches is lost.
func TestSettingWatchSurvivesNodeLoss(t *testing.T) {
	run(t, options{nodes: 3, shards: 3}, func(t *testing.T, w *world) {
		w.found()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		watcher, writer := w.client(), w.client()
		seen := make(chan string, 100)
		go func() {
			defer close(seen)
			for s, err := range watcher.WatchSettings(ctx, "a.") {
				if err != nil {
					return
				}
				seen <- fmt.Sprint(s.GetKey(), "=", s.GetValue())
			}
		}()
		var last uint64
		put := func(key, value string) {
			t.Helper()
			revision, err := writer.PutSetting(t.Context(), key, value)
			if err != nil {
				t.Fatal(err)
			}
			if revision <= last {
				t.Errorf("%s=%s has revision %d after %d", key, value, revision, last)
			}
			last = revision
		}
		wait := func(want string) {
			t.Helper()
			for {
				select {
				case got := <-seen:
					if got == want {
						return
					}
				case <-time.After(patience):
					t.Fatalf("the watch never shows %s", want)
				}
			}
		}
		put("a.x", "1")
		put("b.x", "1")
		wait("a.x=1")
		put("a.x", "2")
		wait("a.x=2")
		w.kill(1) // the node to which the watch is connected
		put("a.y", "3")
		wait("a.y=3")
		w.start(1)
		w.settled()
		put("a.x", "4")
		wait("a.x=4")
		cancel()
		for range seen {
		}
	})
}

// One node after another is stopped and started, and no call fails.
func TestRollingRestart(t *testing.T) {
	long(t)
	run(t, options{nodes: 3, shards: 6}, func(t *testing.T, w *world) {
		w.loaded(pace)
		for _, i := range w.all() {
			w.stop(i)
			time.Sleep(2 * time.Second)
			w.start(i)
			w.settled()
			w.acknowledged(50)
		}
		if n := w.load.Failed(); n != 0 {
			t.Errorf("%d calls failed", n)
		}
		w.judge()
	})
}

// A node that has lost its disk returns under its ID with no data, and gets new
// replicas that have never voted or promised anything.
func TestNodeWithLostDiskGetsNewReplicas(t *testing.T) {
	run(t, options{nodes: 3, shards: 3}, func(t *testing.T, w *world) {
		w.loaded(pace)
		victim := w.leader(1, 1)
		w.kill(victim)
		w.forget(victim)
		w.acknowledged(50)
		w.start(victim)
		others := w.others(victim)
		w.until("its new replicas vote", func() bool { return w.allVoted(3) })
		w.kill(others[0]) // from now on, the new replicas are needed for a quorum
		w.within(2*failOver, "two of three lead every shard", func() bool { return w.led(victim) })
		w.acknowledged(50)
		w.start(others[0])
		w.judge()
	})
}

// The leader of sleeping shards comes back without its disk before the other
// nodes suspect it. They must not wait for a leader that no longer exists.
func TestLeaderReturnsImmediatelyWithoutItsDisk(t *testing.T) {
	run(t, options{nodes: 3, shards: 4}, func(t *testing.T, w *world) {
		w.found()
		time.Sleep(10 * time.Second) // wait until the shards are asleep
		for _, victim := range []int{w.leader(0, 1), w.leader(1, 1)} {
			w.kill(victim)
			w.forget(victim)
			w.start(victim)
			for _, i := range w.others(victim) {
				w.until("every shard is led", func() bool { return w.led(i) })
			}
			w.until("its replicas are there", func() bool { return w.nodes[victim].Ready() && w.allVoted(3) })
			time.Sleep(10 * time.Second)
		}
		w.push()
		for n := range 8 {
			if _, err := w.client().Send(t.Context(), add(nameOf(n), 1)); err != nil {
				t.Error(err)
			}
		}
	})
}

// A node that lost its disk comes back with a clock behind that of its previous
// process. It must be admitted at once, with an incarnation greater than any
// that the other nodes have seen.
func TestReplacedNodeWithEarlierClockIsAdmitted(t *testing.T) {
	long(t)
	for name, ahead := range map[string]time.Duration{"a little": 50 * time.Minute, "a day": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) { replacedWithAnEarlierClock(t, ahead) })
	}
}

func replacedWithAnEarlierClock(t *testing.T, ahead time.Duration) {
	run(t, options{nodes: 3, shards: 3}, func(t *testing.T, w *world) {
		w.loaded(pace)
		w.stop(2)
		name := filepath.Join(w.dirOf(2), "node.json")
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		later := fmt.Sprintf(`"incarnation": %d`, time.Now().Add(ahead).UnixMilli())
		data = regexp.MustCompile(`"incarnation": \d+`).ReplaceAll(data, []byte(later))
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		w.start(2)
		w.settled()
		w.kill(2)
		w.forget(2)
		began := time.Now()
		w.start(2)
		w.until("its replicas vote", func() bool { return w.voted(2, 3) })
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		w.judge()
	})
}

// A leaving node first transfers all its replicas and leaderships, and no call
// fails.
func TestNodeLeaves(t *testing.T) {
	long(t)
	run(t, options{nodes: 4, shards: 4}, func(t *testing.T, w *world) {
		w.loaded(pace)
		if err := w.beside(1).Leave(t.Context(), "n4"); err != nil {
			t.Fatal(err)
		}
		if w.nodes[4].Ready() {
			t.Error("n4 has left and is ready")
		}
		w.until("n4 is no member", func() bool { return len(w.overview(1).GetMembers()) == 3 })
		w.until("the others hold all replicas", func() bool { return w.voted(1, 3, 4) })
		w.stop(4)
		w.acknowledged(50)
		if n := w.load.Failed(); n != 0 {
			t.Errorf("%d calls failed", n)
		}
		w.judge()
	})
}

// The leave request is sent to the leaving node itself, which must report when
// it has left, although no other node communicates with the leaving node by
// then. Just before that, another node has come back with an empty disk and has
// no vote in the metadata shard yet.
func TestLeaveThroughLeavingNode(t *testing.T) {
	long(t)
	run(t, options{nodes: 4, shards: 4}, func(t *testing.T, w *world) {
		w.loaded(pace)
		back := w.others(w.leader(0, 4))[0]
		if back == 4 {
			back = w.others(w.leader(0, 4))[1]
		}
		w.kill(back)
		if err := w.beside(4).Down(t.Context(), string(id(back))); err != nil {
			t.Fatal(err)
		}
		w.until("its replicas are elsewhere", func() bool { return w.voted(4, 3, back) })
		w.start(back)
		w.until("it is up again", func() bool { return w.status(back, 4) == "up" })
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.beside(4).Leave(ctx, "n4"); err != nil {
			t.Error(err)
		}
		if n4 := w.nodes[4]; n4.Ready() {
			t.Error("n4 has left and is ready")
		}
		for i := range w.nodes {
			if got := w.status(4, i); got != "" {
				t.Errorf("%s says that n4 is %s", id(i), got)
			}
		}
		w.stop(4)
		w.acknowledged(50)
		w.judge()
	})
}

// A drain is shown on every node and continues when the coordinator dies. A
// restart of the node ends it.
func TestDrainSurvivesCoordinatorLoss(t *testing.T) {
	run(t, options{nodes: 3, shards: 6}, func(t *testing.T, w *world) {
		w.loaded(pace)
		first := w.leader(0, 1)
		drained := w.others(first)[0]
		if _, err := w.client().Drain(t.Context(), string(id(drained))); err != nil {
			t.Fatal(err)
		}
		draining := func(i int) bool {
			for _, m := range w.overview(i).GetMembers() {
				if m.GetNodeId() == string(id(drained)) {
					return m.GetDraining()
				}
			}
			return false
		}
		for i := range w.nodes {
			w.until("every node shows the drain", func() bool { return draining(i) })
		}
		leads := func(i int) (n int) {
			for _, s := range w.shards(w.others(drained)[0]) {
				if w.place(s.GetLeader()) == i {
					n++
				}
			}
			return n
		}
		w.kill(first)
		third := w.others(drained)[0]
		w.until("the third node leads all", func() bool { return leads(third) == 7 })
		w.start(first)
		w.settled()
		w.until("the first node leads again", func() bool { return leads(first) > 0 })
		w.load.SetPause(10 * pace)
		time.Sleep(10 * time.Second)
		w.load.SetPause(pace)
		if n := leads(drained); n != 0 {
			t.Errorf("the drained node leads %d shards", n)
		}
		w.stop(drained)
		w.start(drained)
		w.settled()
		w.until("it leads after its start", func() bool { return leads(drained) > 0 })
		if draining(drained) {
			t.Error("the drain outlived a new start")
		}
		w.judge()
	})
}

// If a node asks for admission while the metadata shard has no quorum, the
// nodes that it asks list it as waiting, and the node itself reports that it
// waits. It is admitted when the other nodes are back.
func TestWaitingNodeIsListed(t *testing.T) {
	run(t, options{nodes: 3, shards: 3}, func(t *testing.T, w *world) {
		w.found()
		w.kill(2, 3)
		admitted := w.launch(4)
		w.until("n1 shows n4", func() bool { return w.status(4, 1) == "weakly_up" })
		w.until("one of three says that it has no quorum", func() bool { return !w.overview(1).GetQuorum() })
		if _, err := w.beside(4).Cluster(t.Context()); !client.IsUnavailable(err) {
			t.Errorf("a node that waits answers %v", err)
		}
		w.start(2, 3)
		admitted()
		w.settled()
		for i := range w.nodes {
			w.until("n4 is a member", func() bool { return w.status(4, i) == "up" })
		}
	})
}

// Nodes that stop at the same time must not wait for each other to take over
// their shards.
func TestSimultaneousStopsDoNotWait(t *testing.T) {
	run(t, options{nodes: 3, shards: 6}, func(t *testing.T, w *world) {
		w.loaded(pace)
		w.judge()
		for _, n := range w.nodes {
			w.stopped = append(w.stopped, n.dir)
		}
		began := time.Now()
		w.stopAll()
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("it took %v", took)
		}
		t.Logf("all have stopped after %v", time.Since(began))
	})
}

// A module that is not active for any type is copied to a node that joins
// later, so that it outlives all the nodes to which it was uploaded.
func TestUnboundModulesAreCopied(t *testing.T) {
	run(t, options{nodes: 3, shards: 3}, func(t *testing.T, w *world) {
		w.found()
		up, err := w.client().Upload(t.Context(), modules["counter"], false)
		if err != nil {
			t.Fatal(err)
		}
		w.start(4)
		w.settled()
		time.Sleep(time.Minute)
		w.kill(1, 2, 3)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if wasm, err := w.beside(4).Download(ctx, up.Digest); err != nil || !bytes.Equal(wasm, modules["counter"]) {
			t.Errorf("%d bytes, %v", len(wasm), err)
		}
	})
}

// A shard with five replicas of which two are dead survives no further failure.
// After an operator marks the two nodes as down, their replicas leave every
// shard, and a third node may die. Until another node joins, the replication
// policy is shown as a pending operation.
func TestVotersOfDownedNodesAreReplaced(t *testing.T) {
	run(t, options{nodes: 5, shards: 3}, func(t *testing.T, w *world) {
		w.loaded(10 * pace)
		five, three := uint32(5), uint32(3)
		if _, err := w.client().SetPolicy(t.Context(), &clusterv1.SetPolicyRequest{Replication: &five}); err != nil {
			t.Fatal(err)
		}
		pending := func(seen int, kind string) *clusterv1.PendingOperation {
			for _, o := range w.overview(seen).GetPendingOperations() {
				if o.GetKind() == kind {
					return o
				}
			}
			return nil
		}
		w.until("every shard has five voters", func() bool { return w.allVoted(5) })
		w.until("nothing is pending", func() bool { return pending(1, "replication") == nil })
		w.kill(4, 5)
		for _, i := range []int{4, 5} {
			if err := w.client().Down(t.Context(), string(id(i))); err != nil {
				t.Fatal(err)
			}
		}
		for _, i := range []int{1, 2, 3} {
			w.until("three voters each are left", func() bool { return w.voted(i, 3, 4, 5) })
			w.until("the dead nodes are no members", func() bool { return w.status(4, i) == "" && w.status(5, i) == "" })
			w.until("the policy waits for nodes", func() bool {
				o := pending(i, "replication")
				return o.GetRemaining() > 0 && strings.Contains(o.GetReason(), "needs 5 storage nodes, only 3 are up")
			})
		}
		if _, err := w.client().SetPolicy(t.Context(), &clusterv1.SetPolicyRequest{Replication: &three}); err != nil {
			t.Fatal(err)
		}
		w.until("nothing is pending", func() bool { return pending(1, "replication") == nil })
		w.until("every node knows its voters", func() bool { return w.allVoted(3) })
		w.kill(3)
		w.until("the two others lead all", func() bool { return w.led(1) && w.led(2) })
		w.acknowledged(50)
		w.start(3)
		w.settled()
		w.judge()
	})
}
