package peer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/memnet"
)

// bubble is two or more nodes on an in-memory network with a virtual clock. It
// fails if a goroutine is left.
type bubble struct {
	*testing.T
	net   *memnet.Network
	nodes map[sharding.NodeID]*node
}

func inBubble(t *testing.T, names string, test func(b *bubble)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t, memnet.New(), map[sharding.NodeID]*node{}}
		defer func() {
			for _, d := range b.nodes {
				d.stop(t)
			}
			time.Sleep(time.Minute) // until the servers have closed their idle connections
		}()
		for _, name := range strings.Fields(names) {
			b.start(name, 1)
		}
		b.meet()
		test(b)
	})
}

func (b *bubble) start(name string, incarnation uint64, changes ...setup) *node {
	changes = append(changes, func(o *peer.Options) { o.Incarnation = incarnation })
	d := start(b, b.net.Host(name), ":7000", sharding.NodeID(name), changes...)
	b.nodes[d.id] = d
	return d
}

func (b *bubble) kill(d *node) {
	b.net.Host(string(d.id)).Kill()
	d.stop(b)
	delete(b.nodes, d.id)
}

// meet gives all nodes each other's addresses and waits until all see each
// other alive.
func (b *bubble) meet() {
	b.Helper()
	var all []*node
	for _, d := range b.nodes {
		all = append(all, d)
	}
	connectAll(all...)
	for _, d := range all {
		for _, other := range all {
			if d != other {
				d.until(b, fmt.Sprint("hearing ", other.id), func() bool {
					s := d.state[other.id]
					return len(s) > 0 && s[len(s)-1] == "heard"
				})
			}
		}
	}
}

// carries sends a frame and returns how long it took to arrive.
func (b *bubble) carries(from, to *node) time.Duration {
	b.Helper()
	began := time.Now()
	probe := fmt.Sprint("probe ", began.UnixNano())
	for time.Since(began) < 10*time.Second {
		from.Send(to.id, []byte(probe))
		time.Sleep(10 * time.Millisecond)
		to.mu.Lock()
		arrived := len(to.frames) > 0 && to.frames[len(to.frames)-1].data == probe
		to.mu.Unlock()
		if arrived {
			return time.Since(began)
		}
	}
	b.Fatalf("nothing goes from %s to %s", from.id, to.id)
	return 0
}

// A stopped process keeps its connections, so only the suspicion timeout
// detects it.
func TestFrozenPeer(t *testing.T) {
	for _, length := range []time.Duration{2 * time.Second, 10 * time.Second, 10 * time.Minute} {
		inBubble(t, "a b", func(b *bubble) {
			na, nb := b.nodes["a"], b.nodes["b"]
			b.carries(na, nb)
			b.net.Host("b").Freeze()
			began := time.Now()
			na.untilState(t, "b", "heard", "silent")
			if took := time.Since(began); took < 500*time.Millisecond || took > time.Second {
				t.Errorf("its silence was noticed after %v", took)
			}
			time.Sleep(length)
			if na.IsAlive("b") {
				t.Error("a frozen node is alive")
			}
			b.net.Host("b").Thaw()
			na.untilState(t, "b", "heard", "silent", "heard")
			t.Logf("frozen for %v: frames go after %v", length, b.carries(na, nb))
			b.carries(nb, na)
		})
	}
}

// If one direction is cut, only one side stops hearing the other. After
// healing, frames arrive at once, although TCP would wait for a minute.
func TestOneWayPartition(t *testing.T) {
	for _, length := range []time.Duration{5 * time.Second, 10 * time.Minute} {
		inBubble(t, "a b", func(b *bubble) {
			na, nb := b.nodes["a"], b.nodes["b"]
			b.net.Cut("a", "b")
			nb.untilState(t, "a", "heard", "silent")
			if !na.IsAlive("b") {
				t.Error("b is not alive for a, although its frames arrive")
			}
			for range 100 {
				na.Send("b", make([]byte, 1<<20)) // fills more than the connection buffers
			}
			time.Sleep(length)
			b.net.Heal("a", "b")
			healed := time.Now()
			nb.untilState(t, "a", "heard", "silent", "heard")
			b.carries(na, nb)
			if took := time.Since(healed); took > time.Second {
				t.Errorf("cut for %v: frames go %v after the end", length, took)
			}
			b.carries(nb, na)
		})
	}
}

func TestBrokenConnections(t *testing.T) {
	inBubble(t, "a b c", func(b *bubble) {
		for range 20 {
			b.net.Break("a", "b")
			b.carries(b.nodes["a"], b.nodes["b"])
			b.carries(b.nodes["b"], b.nodes["a"])
		}
		for _, d := range b.nodes {
			for id, s := range d.state {
				if len(s) != 1 {
					t.Errorf("%s saw these states of %s: %v", d.id, id, s)
				}
			}
		}
	})
}

func TestRestartedPeer(t *testing.T) {
	inBubble(t, "a b", func(b *bubble) {
		na := b.nodes["a"]
		time.Sleep(lasted)
		b.kill(b.nodes["b"])
		na.untilState(t, "b", "heard", "gone", "silent")
		time.Sleep(time.Minute)
		nb := b.start("b", 2)
		b.meet()
		b.carries(na, nb)
		b.carries(nb, na)
	})
}

// While an older incarnation of a node still runs, nothing from it is
// accepted after the newer incarnation was heard from.
func TestOlderStartIsRejected(t *testing.T) {
	inBubble(t, "a b", func(b *bubble) {
		na, old := b.nodes["a"], b.nodes["b"]
		b.carries(old, na)
		newer := start(b, b.net.Host("b2"), ":7000", "b", func(o *peer.Options) { o.Incarnation = 2 })
		defer newer.stop(t)
		newer.SetAddresses(map[sharding.NodeID]string{"a": na.addr})
		b.carries(newer, na)
		for range 100 {
			old.Send("a", []byte("stale"))
			time.Sleep(20 * time.Millisecond)
		}
		for _, f := range na.frames {
			if f.data == "stale" {
				t.Fatal("a frame of the older start was taken")
			}
		}
		if _, err := old.Propose(b.Context(), "a", nil); !errors.Is(err, peer.ErrOldIncarnation) {
			t.Errorf("a call of the older start: %v", err)
		}
		if !old.TakeReplaced() || newer.TakeReplaced() {
			t.Error("not only the older start knows that it is replaced")
		}
		// a still has the address of the older incarnation.
		if _, err := na.Propose(b.Context(), "b", nil); !errors.Is(err, peer.ErrOldIncarnation) {
			t.Errorf("a call to the older start: %v", err)
		}
		if na.TakeReplaced() {
			t.Error("a node that is called by an older start considers itself replaced")
		}
		na.SetAddresses(map[sharding.NodeID]string{"b": newer.addr})
		b.carries(na, newer)
	})
}

func TestNodesOfOtherClustersAreRejected(t *testing.T) {
	inBubble(t, "a b", func(b *bubble) {
		na, nb := b.nodes["a"], b.nodes["b"]
		c := b.start("c", 1, func(o *peer.Options) { o.Cluster = "other" })
		c.SetAddresses(map[sharding.NodeID]string{"a": na.addr})
		na.SetAddresses(map[sharding.NodeID]string{"b": nb.addr, "c": c.addr, "d": nb.addr})
		for range 100 {
			c.Send("a", []byte("from another cluster"))
			na.Send("c", []byte("to another cluster"))
			na.Send("d", []byte("to another node"))
			time.Sleep(20 * time.Millisecond)
		}
		for _, d := range b.nodes {
			for _, f := range d.frames {
				t.Errorf("%s got %q", d.id, f.data)
			}
		}
		if c.IsAlive("a") || na.IsAlive("c") || na.IsAlive("d") {
			t.Error("a node of a different cluster is alive")
		}
		if _, err := c.Propose(b.Context(), "a", nil); !errors.Is(err, peer.ErrWrongCluster) {
			t.Errorf("a call from a different cluster: %v", err)
		}
		if _, err := na.Propose(b.Context(), "d", nil); !errors.Is(err, peer.ErrWrongNode) {
			t.Errorf("a call to a different node: %v", err)
		}
		if _, err := c.Probe(b.Context(), na.addr); !errors.Is(err, peer.ErrUnavailable) { // node a has no Control
			t.Errorf("a probe from a different cluster: %v", err)
		}
		na.untilState(t, "b", "heard")
	})
}

// A node without a cluster calls no node and accepts no calls until it has one.
func TestNodeWithoutClusterMakesNoCalls(t *testing.T) {
	inBubble(t, "a", func(b *bubble) {
		na := b.nodes["a"]
		c := b.start("c", 1, func(o *peer.Options) { o.Cluster = "" })
		connectAll(na, c)
		time.Sleep(5 * time.Second)
		if na.IsAlive("c") || c.IsAlive("a") {
			t.Error("a node without a cluster is alive")
		}
		if err := c.SetCluster("test"); err != nil {
			t.Fatal(err)
		}
		b.carries(c, na)
		b.carries(na, c)
		if err := c.SetCluster("another"); !errors.Is(err, peer.ErrWrongCluster) {
			t.Errorf("a second cluster: %v", err)
		}
	})
}

// A receiver that hangs costs the sender only the memory of its queue.
// When it continues, it receives frames again, in order and without
// duplicates.
func TestHangingReceiverCostsOnlyItsQueue(t *testing.T) {
	inBubble(t, "a", func(b *bubble) {
		na := b.nodes["a"]
		hold := make(chan struct{})
		slow := start(b, b.net.Host("s"), ":7000", "s")
		b.nodes["s"] = slow
		slow.hold = hold
		connectAll(na, slow)
		na.untilState(t, "s", "heard")
		const frames = 1000
		for i := range frames {
			na.Send("s", fmt.Appendf(make([]byte, 0, 64<<10), "%-65536d", i))
		}
		time.Sleep(20 * time.Second)
		if na.DroppedFrames("s") == 0 {
			t.Error("64 MiB are queued")
		}
		close(hold)
		b.carries(na, slow)
		last := -1
		for _, f := range slow.frames[:len(slow.frames)-1] {
			var n int
			if strings.HasPrefix(f.data, "probe") {
				continue
			}
			if _, err := fmt.Sscan(f.data, &n); err != nil || n <= last {
				t.Fatalf("frame %d follows %d: %v", n, last, err)
			}
			last = n
		}
	})
}

// Calls to a frozen node end because of their own deadline or because the
// connection fails.
func TestCallsToFrozenPeerEnd(t *testing.T) {
	inBubble(t, "a b", func(b *bubble) {
		b.net.Host("b").Freeze()
		began := time.Now()
		_, err := b.nodes["a"].Propose(b.Context(), "b", []byte("x"))
		if err == nil || errors.Is(err, peer.ErrUnavailable) || time.Since(began) > 6*time.Second {
			t.Errorf("a call without a deadline: %v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(b.Context(), 100*time.Millisecond)
		defer cancel()
		began = time.Now()
		if _, err := b.nodes["a"].ReadMeta(ctx, "b"); err == nil || time.Since(began) > time.Second {
			t.Errorf("a call with a deadline: %v after %v", err, time.Since(began))
		}
		sent := make(chan error)
		body := strings.NewReader(strings.Repeat("x", 10<<20))
		go func() { _, err := b.nodes["a"].SendSnapshot(b.Context(), "b", nil, body); sent <- err }()
		if err := <-sent; err == nil {
			t.Error("a frozen node took a snapshot")
		}
		b.net.Host("b").Thaw()
		b.carries(b.nodes["a"], b.nodes["b"])
	})
}

// A node that is removed from the addresses gets no link, and a node that moves
// is found at its new address.
func TestAddressesChange(t *testing.T) {
	inBubble(t, "a b", func(b *bubble) {
		na, nb := b.nodes["a"], b.nodes["b"]
		na.SetAddresses(nil)
		time.Sleep(5 * time.Second)
		if !na.IsAlive("b") || !nb.IsAlive("a") {
			t.Error("the link from b does not make b alive")
		}
		nb.SetAddresses(nil)
		nb.untilState(t, "a", "heard", "silent")
		na.Send("b", []byte("nowhere"))
		na.SetAddresses(map[sharding.NodeID]string{"b": nb.addr, "a": na.addr})
		nb.untilState(t, "a", "heard", "silent", "heard")
		b.kill(nb)
		moved := start(b, b.net.Host("elsewhere"), ":7000", "b", func(o *peer.Options) { o.Incarnation = 2 })
		b.nodes["b"] = moved
		b.meet()
		b.carries(na, moved)
	})
}

// A slow network with large frames does not cause suspicion.
func TestLargeFramesCauseNoSuspicion(t *testing.T) {
	inBubble(t, "a b", func(b *bubble) {
		na, nb := b.nodes["a"], b.nodes["b"]
		b.net.Delay("a", "b", 100*time.Millisecond) // 1 MiB in flight at a delay of 100 ms, about 5 MiB per second
		b.net.Delay("b", "a", 100*time.Millisecond)
		for range 4 {
			na.Send("b", make([]byte, peer.MaxFrameBytes))
		}
		na.Send("b", make([]byte, peer.MaxFrameBytes+1))
		nb.until(t, "4 frames of 4 MiB", func() bool { return len(nb.frames) == 4 })
		for _, d := range []*node{na, nb} {
			for id, s := range d.state {
				if len(s) != 1 {
					t.Errorf("%s saw these states of %s: %v", d.id, id, s)
				}
			}
		}
		if na.DroppedFrames("b") != 1 {
			t.Errorf("%d frames were dropped, wanted the one that is too large", na.DroppedFrames("b"))
		}
	})
}

// hangingLoop is a raft loop that may hang.
type hangingLoop struct {
	receiver interface{ Receive(sharding.NodeID, []byte) }
	turns    atomic.Uint64
	stands   atomic.Bool
}

func (l *hangingLoop) Receive(from sharding.NodeID, frame []byte) { l.receiver.Receive(from, frame) }

func (l *hangingLoop) Turns() uint64 {
	if l.stands.Load() {
		return l.turns.Load()
	}
	return l.turns.Add(1)
}

// A node whose raft loop hangs still sends heartbeats. Other nodes suspect it,
// and regard it as alive when the loop continues. This does not apply to a node
// that never reports its loop.
func TestHungRaftLoopIsSuspected(t *testing.T) {
	inBubble(t, "a", func(b *bubble) {
		na := b.nodes["a"]
		loop := &hangingLoop{}
		loop.turns.Store(1)
		nb := b.start("b", 1, func(o *peer.Options) { loop.receiver, o.Raft = o.Raft, loop })
		b.meet()
		time.Sleep(time.Minute)
		loop.stands.Store(true)
		began := time.Now()
		na.untilState(t, "b", "heard", "silent")
		if took := time.Since(began); took < 1900*time.Millisecond || took > 2500*time.Millisecond {
			t.Errorf("its loop was missed after %v", took)
		}
		for range 100 {
			nb.Send("a", []byte("from a goroutine of the network"))
			time.Sleep(100 * time.Millisecond)
		}
		if na.IsAlive("b") || !nb.IsAlive("a") {
			t.Errorf("b alive for a: %v, a alive for b: %v", na.IsAlive("b"), nb.IsAlive("a"))
		}
		// A new link does not show that the raft loop makes progress.
		b.net.Break("a", "b")
		time.Sleep(5 * time.Second)
		if na.IsAlive("b") {
			t.Error("a new link makes b alive")
		}
		loop.stands.Store(false)
		na.untilState(t, "b", "heard", "silent", "heard")
		b.carries(na, nb)
	})
}

// Heartbeats measure the round trip to a node and how far its wall clock is
// ahead.
func TestHeartbeatsMeasureRoundTrips(t *testing.T) {
	inBubble(t, "a", func(b *bubble) {
		const ahead, hop = 3 * time.Second, 30 * time.Millisecond
		nb := b.start("b", 1, func(o *peer.Options) { o.Wall = func() time.Time { return time.Now().Add(ahead) } })
		b.net.Delay("a", "b", hop)
		b.net.Delay("b", "a", hop)
		b.meet()
		time.Sleep(time.Minute)
		for d, want := range map[*node]time.Duration{b.nodes["a"]: ahead, nb: -ahead} {
			all := d.Timings(true)
			if len(all) != 1 || all[0].Trips < 100 {
				t.Fatalf("%s has measured %+v", d.id, all)
			}
			m := all[0]
			if off := m.Skew - want; off < -m.Within/2 || off > m.Within/2 || m.Within > 3*hop {
				t.Errorf("%s takes the other's clock to be %v ahead, give or take %v; it is %v", d.id, m.Skew, m.Within/2, want)
			}
			if m.Trip < 2*hop || m.Trip > 4*hop {
				t.Errorf("%s measures a trip of %v over a way of %v", d.id, m.Trip, 2*hop)
			}
		}
	})
}
