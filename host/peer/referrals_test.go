package peer_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
)

// A call to a node's client address is referred to its peer address and
// continues there. This applies to links too. A referral in the answer from the
// peer address is ignored.
func TestCallsFollowReferralToPeerAddress(t *testing.T) {
	ctl := &control{}
	b := start(t, network.TCP{}, "127.0.0.1:0", "b", func(o *peer.Options) { o.Control = ctl })
	defer b.stop(t)
	a := start(t, network.TCP{}, "127.0.0.1:0", "a")
	defer a.stop(t)
	b.SetAddresses(map[sharding.NodeID]string{"a": a.addr})
	var asked atomic.Int64
	to := atomic.Pointer[string]{}
	to.Store(&b.addr)
	clients := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set(network.PeerAddressHeader, *to.Load())
		http.NotFound(w, r)
	}))
	clients.Config.Protocols = new(http.Protocols)
	clients.Config.Protocols.SetHTTP1(true)
	clients.Config.Protocols.SetUnencryptedHTTP2(true)
	clients.Start()
	defer clients.Close()
	at := clients.Listener.Addr().String()
	for range 3 {
		if r, err := a.Probe(t.Context(), at); err != nil || r.GetNodeId() != "b" {
			t.Fatalf("a probe: %v, %v", r, err)
		}
	}
	if r, err := a.ProbeAlone(t.Context(), at); err == nil {
		t.Errorf("who listens for clients passes for one that listens for nodes alone: %v", r)
	}
	if r, err := a.ProbeAlone(t.Context(), b.addr); err != nil || r.GetNodeId() != "b" {
		t.Errorf("b does not listen for nodes alone: %v, %v", r, err)
	}
	asked.Store(1)
	if _, err := a.Join(t.Context(), at, &peerv1.JoinRequest{Member: &peerv1.Member{NodeId: "a", Incarnation: 1}}); err != nil || asked.Load() != 1 {
		t.Errorf("the address for clients was asked %d times: %v", asked.Load(), err)
	}
	a.SetAddresses(map[sharding.NodeID]string{"b": at})
	a.until(t, "b to be heard", func() bool { return len(a.state["b"]) > 0 && a.state["b"][0] == "heard" })
	a.Send("b", []byte("frame"))
	b.until(t, "a frame", func() bool { return len(b.frames) == 1 })
	if a.At(at) != b.addr || a.At("elsewhere:1") != "elsewhere:1" {
		t.Errorf("the node at %s is called at %s", at, a.At(at))
	}

	for _, to2 := range []string{"", "nonsense", "127.0.0.1:0", "127.0.0.1:x", ":", at, strings.Repeat("a", 200) + ":1"} {
		c := start(t, network.TCP{}, "127.0.0.1:0", "c")
		to.Store(&to2)
		if r, err := c.Probe(t.Context(), at); err == nil {
			t.Errorf("referred to %q: %v", to2, r)
		}
		if c.At(at) != at {
			t.Errorf("referred to %q, it is called at %s", to2, c.At(at))
		}
		c.stop(t)
	}
	every := "0.0.0.0" + b.addr[strings.LastIndex(b.addr, ":"):]
	to.Store(&every)
	c := start(t, network.TCP{}, "127.0.0.1:0", "c")
	defer c.stop(t)
	if _, err := c.Probe(t.Context(), at); err != nil || c.At(at) != b.addr {
		t.Errorf("a node that listens on every interface is called at %s: %v", c.At(at), err)
	}
}

// If nothing answers at the address to which a node referred, the original
// address is tried again.
func TestReferralsEndWithTheNode(t *testing.T) {
	b := start(t, network.TCP{}, "127.0.0.1:0", "b", func(o *peer.Options) { o.Control = &control{} })
	defer b.stop(t)
	a := start(t, network.TCP{}, "127.0.0.1:0", "a")
	defer a.stop(t)
	// Another process has the node's former port. It accepts connections and
	// speaks a different protocol.
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for {
			conn, err := other.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	defer func() {
		other.Close()
		<-closed
	}()
	was := other.Addr().String()
	to := atomic.Pointer[string]{}
	to.Store(&was)
	clients := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(network.PeerAddressHeader, *to.Load())
		http.NotFound(w, r)
	}))
	clients.Config.Protocols = new(http.Protocols)
	clients.Config.Protocols.SetHTTP1(true)
	clients.Config.Protocols.SetUnencryptedHTTP2(true)
	clients.Start()
	defer clients.Close()
	at := clients.Listener.Addr().String()
	if r, err := a.Probe(t.Context(), at); err == nil {
		t.Errorf("referred to who is no node: %v", r)
	}
	to.Store(&b.addr)
	if r, err := a.Probe(t.Context(), at); err != nil || r.GetNodeId() != "b" {
		t.Errorf("the node serves elsewhere now: %v, %v", r, err)
	}
}
