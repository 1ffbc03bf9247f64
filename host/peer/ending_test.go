package peer_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/sharding"
)

// lasted is more than the time that a link must last for its end to be followed
// by an immediate dial.
const lasted = 10 * time.Second

// The end of a process is noticed before the suspicion timeout. Only PeerFailed
// reports it; for all other purposes the node is alive until it is suspected.
func TestEndedProcessFailsImmediately(t *testing.T) {
	inBubble(t, "a b c", func(b *bubble) {
		na, nc := b.nodes["a"], b.nodes["c"]
		time.Sleep(lasted)
		began := time.Now()
		b.kill(b.nodes["b"])
		for _, d := range []*node{na, nc} {
			d.untilState(t, "b", "heard", "gone")
			if took := time.Since(began); took > 50*time.Millisecond {
				t.Errorf("%s noticed its end after %v", d.id, took)
			}
			if !d.IsAlive("b") {
				t.Errorf("b is not alive for %s after a hint only", d.id)
			}
		}
		for _, d := range []*node{na, nc} {
			d.untilState(t, "b", "heard", "gone", "silent")
			if took := time.Since(began); took < 500*time.Millisecond {
				t.Errorf("%s takes it for silent after %v", d.id, took)
			}
			if d.IsAlive("b") {
				t.Errorf("b is alive for %s", d.id)
			}
		}
		na.untilState(t, "c", "heard")
	})
}

// When a process ends, its kernel may close its links first and accept
// connections until it closes the listener.
func TestProcessEndsInSteps(t *testing.T) {
	inBubble(t, "a b", func(b *bubble) {
		na := b.nodes["a"]
		time.Sleep(lasted)
		b.net.Host("b").Freeze()
		b.net.Break("a", "b")
		time.Sleep(20 * time.Millisecond)
		if s := na.states("b"); len(s) != 1 {
			t.Fatalf("while its kernel accepts: %v", s)
		}
		began := time.Now()
		b.net.Host("b").Kill()
		b.net.Host("b").Thaw()
		na.untilState(t, "b", "heard", "gone")
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("its end was noticed after %v", took)
		}
	})
}

// A node that does not answer although its process has not ended is
// suspected, and does not count as failed.
func TestSuspectedNodeIsNotFailed(t *testing.T) {
	for name, silence := range map[string]func(b *bubble){
		"frozen":       func(b *bubble) { b.net.Host("b").Freeze() },
		"cut":          func(b *bubble) { b.net.Partition([]string{"a"}, []string{"b"}) },
		"deaf":         func(b *bubble) { b.net.Cut("b", "a") },
		"cut and dead": func(b *bubble) { b.net.Partition([]string{"a"}, []string{"b"}); b.net.Host("b").Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, "a b", func(b *bubble) {
				time.Sleep(lasted)
				silence(b)
				b.nodes["a"].untilState(t, "b", "heard", "silent")
				time.Sleep(time.Minute)
				b.nodes["a"].untilState(t, "b", "heard", "silent")
				b.net.HealAll()
				b.net.Host("b").Thaw()
			})
		})
	}
}

// Broken connections do not count as the end of a process while the node
// listens.
func TestBrokenLinkIsNotFailure(t *testing.T) {
	inBubble(t, "a b", func(b *bubble) {
		na := b.nodes["a"]
		for range 5 {
			time.Sleep(lasted)
			b.net.Break("a", "b")
			b.carries(na, b.nodes["b"])
		}
		na.untilState(t, "b", "heard")
	})
}

// accepting records accepted connections.
type accepting struct {
	network.Network
	mu  sync.Mutex
	all []net.Conn
}

func (a *accepting) Listen(address string) (net.Listener, error) {
	l, err := a.Network.Listen(address)
	return &noting{l, a}, err
}

type noting struct {
	net.Listener
	in *accepting
}

func (k *noting) Accept() (net.Conn, error) {
	conn, err := k.Listener.Accept()
	if err == nil {
		k.in.mu.Lock()
		k.in.all = append(k.in.all, conn)
		k.in.mu.Unlock()
	}
	return conn, err
}

// A node that no longer listens and has closed the link to it is alive, because
// its own link continues.
func TestClosedListenerIsNotFailure(t *testing.T) {
	inBubble(t, "a", func(b *bubble) {
		na := b.nodes["a"]
		kept := &accepting{Network: b.net.Host("b")}
		nb := start(b, kept, ":7000", "b")
		b.nodes["b"] = nb
		b.meet()
		time.Sleep(lasted)
		nb.listener.Close()
		kept.mu.Lock()
		for _, conn := range kept.all {
			conn.Close()
		}
		kept.mu.Unlock()
		time.Sleep(time.Minute)
		na.untilState(t, "b", "heard")
		b.carries(nb, na)
	})
}

// A refused dial of another address says nothing about the node.
func TestRefusedDialOfOtherAddressIsIgnored(t *testing.T) {
	inBubble(t, "a b", func(b *bubble) {
		na := b.nodes["a"]
		time.Sleep(lasted)
		b.net.Host("b").Kill()
		na.SetAddresses(map[sharding.NodeID]string{"b": "b:7001"})
		na.untilState(t, "b", "heard", "silent")
	})
}

// If another process has taken the port of a node that ended, dials are not
// refused.
func TestPortTakenByOtherProcess(t *testing.T) {
	inBubble(t, "b", func(b *bubble) {
		slow := &slowDials{Network: b.net.Host("a")}
		na := start(b, slow, ":7000", "a")
		b.nodes["a"] = na
		b.meet()
		b.nodes["b"].SetAddresses(nil) // so that b does not call a through the other process's port
		time.Sleep(lasted)
		slow.by.Store(int64(10 * time.Millisecond))
		b.net.Host("b").Kill()
		other := start(b, b.net.Host("b"), ":7000", "other")
		b.nodes["other"] = other
		na.untilState(t, "b", "heard", "silent")
		time.Sleep(time.Minute)
		na.untilState(t, "b", "heard", "silent")
	})
}

// A node that restarts at its address is alive again, whether its end was
// noticed or not.
func TestRestartAtTheSameAddress(t *testing.T) {
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second} {
		inBubble(t, "a b", func(b *bubble) {
			na := b.nodes["a"]
			time.Sleep(lasted)
			b.kill(b.nodes["b"])
			time.Sleep(after)
			nb := b.start("b", 2)
			b.meet()
			b.carries(na, nb)
			b.carries(nb, na)
			states := na.states("b")
			if !slices.Contains(states, "silent") || states[len(states)-1] != "heard" {
				t.Errorf("restarted after %v: %v; it must be suspected once, like any other new start", after, states)
			}
			time.Sleep(time.Minute)
			na.untilState(t, "b", states...)
		})
	}
}

// slowDials is a network with slow dials.
type slowDials struct {
	network.Network
	by atomic.Int64
}

func (s *slowDials) Dial(ctx context.Context, address string) (net.Conn, error) {
	time.Sleep(time.Duration(s.by.Load()))
	return s.Network.Dial(ctx, address)
}

// A wrong report of a failure is withdrawn when the first byte arrives from the
// node.
func TestFailureHintEndsWithNextByte(t *testing.T) {
	inBubble(t, "a", func(b *bubble) {
		na := b.nodes["a"]
		slow := &slowDials{Network: b.net.Host("b")}
		nb := start(b, slow, ":7000", "b")
		b.nodes["b"] = nb
		b.meet()
		time.Sleep(lasted)
		slow.by.Store(int64(300 * time.Millisecond))
		nb.listener.Close()
		b.net.Break("a", "b")
		na.untilState(t, "b", "heard", "gone", "heard")
		time.Sleep(time.Minute)
		na.untilState(t, "b", "heard", "gone", "heard")
	})
}
