// Package gossip tests package membership with several nodes at once, over an
// in-memory network and on a simulated clock.
package gossip

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/membership"
	dns "github.com/hostd/hostd/sharding/membership/seeds"
	"github.com/hostd/hostd/tests/support/memnet"
)

// world is several nodes on one network.
type world struct {
	t     *testing.T
	net   *memnet.Network
	nodes map[int]*node
}

type node struct {
	*membership.Membership
	http interface{ Close() error }
}

func newWorld(t *testing.T) *world {
	return &world{t: t, net: memnet.New(), nodes: map[int]*node{}}
}

// lastProbe is how long a probe of memberlist can outlive its node: it cannot
// be cancelled, and a node that considers itself slow waits for eight seconds.
const lastProbe = 10 * time.Second

// inBubble runs a test on a simulated clock, and fails it if it leaves a
// goroutine.
func inBubble(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer func() {
			for i := range w.nodes {
				w.stop(i)
			}
			time.Sleep(lastProbe)
		}()
		test(w)
	})
}

func host(i int) string          { return fmt.Sprintf("10.0.0.%d", i) }
func address(i int) string       { return host(i) + ":7000" }
func id(i int) sharding.NodeID   { return sharding.NodeID(fmt.Sprintf("n%d", i)) }
func seeds(nodes ...int) setting { return func(o *membership.Options) { o.Seeds = addresses(nodes) } }

func addresses(nodes []int) []string {
	var out []string
	for _, i := range nodes {
		out = append(out, address(i))
	}
	return out
}

type setting func(*membership.Options)

// start starts a node. The incarnation counts the processes of the node.
func (w *world) start(i int, incarnation uint64, settings ...setting) *node {
	w.t.Helper()
	on := w.net.Host(host(i))
	l, err := on.Listen(":7000")
	if err != nil {
		w.t.Fatal(err)
	}
	http, gossip := network.Split(l)
	opts := membership.Options{
		Node: id(i), Incarnation: incarnation, Address: address(i), Cluster: "c1", Disk: fmt.Sprint("disk", i), Label: "test",
		Transport: network.NewGossip(on, nil, gossip),
		Lookup: dns.Lookup{Host: func(context.Context, string) ([]string, error) {
			w.t.Error("a name was looked up")
			return nil, nil
		}},
	}
	for _, s := range settings {
		s(&opts)
	}
	m, err := membership.Start(w.t.Context(), opts)
	if err != nil {
		w.t.Fatal(err)
	}
	n := &node{m, http}
	w.nodes[i] = n
	return n
}

// stop ends a node without notifying the others.
func (w *world) stop(i int) {
	w.t.Helper()
	n := w.nodes[i]
	delete(w.nodes, i)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		w.t.Errorf("close %s: %v", id(i), err)
	}
	if err := n.http.Close(); err != nil {
		w.t.Error(err)
	}
}

// crash ends a node's process.
func (w *world) crash(i int) {
	w.t.Helper()
	w.net.Host(host(i)).Kill()
	w.stop(i)
}

// sees describes a node's view: the names of the reachable nodes, then the
// names of the other nodes with their status.
func (w *world) sees(i int) string {
	var out []string
	for _, p := range w.nodes[i].Nodes() {
		s := fmt.Sprintf("%s.%d", p.ID, p.Incarnation)
		switch {
		case p.Left:
			s += "(left)"
		case !p.Reachable:
			s += "(lost)"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// until lets time pass until a node's view is want, and returns the elapsed
// time.
func (w *world) until(i int, want string, limit time.Duration) time.Duration {
	w.t.Helper()
	began := time.Now()
	for w.sees(i) != want {
		if time.Since(began) > limit {
			w.t.Fatalf("%s sees %q after %v, wanted %q", id(i), w.sees(i), limit, want)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return time.Since(began)
}

// allSee waits until every node sees all others alive.
func (w *world) allSee(incarnations map[int]uint64, limit time.Duration) {
	w.t.Helper()
	for i := range w.nodes {
		w.until(i, others(i, incarnations), limit)
	}
}

// others returns the expected view of a node when all nodes are alive.
func others(of int, incarnations map[int]uint64) string {
	var out []string
	for i := range 10 {
		if n, ok := incarnations[i]; ok && i != of {
			out = append(out, fmt.Sprintf("%s.%d", id(i), n))
		}
	}
	return strings.Join(out, " ")
}

// upTo returns nodes 1 to n, each with the incarnation of its first process.
func upTo(n int) map[int]uint64 {
	all := map[int]uint64{}
	for i := 1; i <= n; i++ {
		all[i] = 1
	}
	return all
}
