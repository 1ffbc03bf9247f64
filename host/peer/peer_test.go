package peer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
)

// node is a node in a test: Peers behind an HTTP server.
type node struct {
	*peer.Peers
	id       sharding.NodeID
	addr     string
	server   *http.Server
	listener net.Listener
	served   chan error
	hold     chan struct{} // if not nil, Receive waits for it

	mu      sync.Mutex
	changed *sync.Cond
	frames  []frame
	state   map[sharding.NodeID][]string
}

// everybody is metadata that contains every node as a member.
type everybody struct{}

func (everybody) Standing(sharding.NodeID, uint64) peer.Standing { return peer.StandingMember }
func (everybody) Confirm(context.Context) error                  { return nil }

type frame struct {
	from sharding.NodeID
	data string
}

// Receive implements the raft loop of a node.
func (d *node) Receive(from sharding.NodeID, f []byte) {
	if d.hold != nil {
		<-d.hold
	}
	d.note(func() { d.frames = append(d.frames, frame{from, string(f)}) })
}

func (d *node) Turns() uint64 { return 0 }

func (d *node) PeerAlive(id sharding.NodeID)     { d.noteState(id, "heard") }
func (d *node) PeerSuspected(id sharding.NodeID) { d.noteState(id, "silent") }
func (d *node) PeerFailed(id sharding.NodeID)    { d.noteState(id, "gone") }

func (d *node) PeerRefused(*http.Request, sharding.NodeID, error) {}

func (d *node) noteState(id sharding.NodeID, state string) {
	d.note(func() { d.state[id] = append(d.state[id], state) })
}

type setup func(*peer.Options)

func start(t testing.TB, n network.Network, address string, id sharding.NodeID, changes ...setup) *node {
	t.Helper()
	d := &node{id: id, state: map[sharding.NodeID][]string{}, served: make(chan error, 1)}
	d.changed = sync.NewCond(&d.mu)
	opts := peer.Options{
		Self: id, Incarnation: 1, Cluster: "test", Network: n,
		Raft: d, Observer: d,
	}
	for _, c := range changes {
		c(&opts)
	}
	var err error
	if d.Peers, err = peer.New(opts); err != nil {
		t.Fatal(err)
	}
	d.SetMembers(everybody{})
	l, err := n.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	d.addr, d.listener = l.Addr().String(), l
	mux := http.NewServeMux()
	mux.Handle(d.Handler())
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	d.server = &http.Server{Handler: mux, Protocols: protocols, ConnContext: network.WithNode, ReadTimeout: 35 * time.Second, WriteTimeout: 35 * time.Second}
	go func() { d.served <- d.server.Serve(l) }()
	return d
}

func (d *node) note(fn func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fn()
	d.changed.Broadcast()
}

func (d *node) stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := d.Close(ctx); err != nil {
		t.Errorf("close %s: %v", d.id, err)
	}
	if err := d.server.Shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Errorf("shut down %s: %v", d.id, err)
	}
	<-d.served
}

// until waits for a condition on the frames and callbacks that the node has
// recorded.
func (d *node) until(t testing.TB, what string, done func() bool) {
	t.Helper()
	late := false
	timer := time.AfterFunc(30*time.Second, func() { d.note(func() { late = true }) })
	defer timer.Stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	for !done() {
		if late {
			t.Fatalf("%s waited for %s in vain; states %v, %d frames", d.id, what, d.state, len(d.frames))
		}
		d.changed.Wait()
	}
}

func (d *node) untilState(t testing.TB, of sharding.NodeID, want ...string) {
	t.Helper()
	d.until(t, fmt.Sprintf("%s to be %v", of, want), func() bool { return fmt.Sprint(d.state[of]) == fmt.Sprint(want) })
}

// states returns the callbacks about another node so far.
func (d *node) states(of sharding.NodeID) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.state[of])
}

func connectAll(nodes ...*node) {
	addresses := map[sharding.NodeID]string{}
	for _, d := range nodes {
		addresses[d.id] = d.addr
	}
	for _, d := range nodes {
		d.SetAddresses(addresses)
	}
}

func TestFramesArriveOverTCP(t *testing.T) {
	a := start(t, network.TCP{}, "127.0.0.1:0", "a")
	defer a.stop(t)
	b := start(t, network.TCP{}, "127.0.0.1:0", "b")
	defer b.stop(t)
	connectAll(a, b)
	a.untilState(t, "b", "heard")
	b.untilState(t, "a", "heard")
	for i := range 1000 {
		a.Send("b", fmt.Append(nil, "frame ", i))
	}
	b.until(t, "frames", func() bool { return len(b.frames) == 1000 })
	for i, f := range b.frames {
		if f.from != "a" || f.data != fmt.Sprint("frame ", i) {
			t.Fatalf("frame %d is %q from %s", i, f.data, f.from)
		}
	}
	want := peer.Stats{
		Node: "b", Address: b.addr, Incarnation: 1, Alive: true,
		FramesSent: 1000, BytesSent: 10*7 + 90*8 + 900*9,
	}
	s := a.Stats()[0]
	for began := time.Now(); s.QueuedFrames != 0 && time.Since(began) < 10*time.Second; s = a.Stats()[0] {
		time.Sleep(time.Millisecond) // arrived frames are counted a moment later
	}
	if want.Links = s.Links; s != want || s.Links == 0 {
		t.Errorf("%+v\nwanted %+v", s, want)
	}
}
