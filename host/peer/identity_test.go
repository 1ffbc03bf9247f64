package peer_test

import (
	"context"
	"errors"
	"net"
	"testing"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// proven is a network whose connections prove the identity of the other side.
// An accepted connection proves that the node named in dials has made it, and a
// dialed connection that the node named in serves has answered it.
type proven struct {
	network.TCP
	dials, serves string
}

type provenConn struct {
	net.Conn
	node string
}

func (c provenConn) Node() string { return c.node }

// over is a wrapper around a connection, like those that servers add.
type over struct{ net.Conn }

func (o over) NetConn() net.Conn { return o.Conn }

func (p proven) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := p.TCP.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return over{provenConn{conn, p.serves}}, nil
}

type provenListener struct {
	net.Listener
	dials string
}

func (l provenListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return over{provenConn{conn, l.dials}}, nil
}

func (p proven) Listen(address string) (net.Listener, error) {
	l, err := p.TCP.Listen(address)
	return provenListener{l, p.dials}, err
}

// If a connection proves which node is on its other side, that node can only
// speak for itself: as the caller, as the answering node, and in the content of
// its requests.
func TestNodeSpeaksOnlyForItself(t *testing.T) {
	c := &control{}
	b := start(t, proven{dials: "a", serves: "a"}, "127.0.0.1:0", "b", func(o *peer.Options) { o.Control = c })
	defer b.stop(t)
	a := start(t, proven{dials: "b", serves: "b"}, "127.0.0.1:0", "a")
	defer a.stop(t)
	connectAll(a, b)
	a.Send("b", []byte("frame"))
	b.until(t, "a frame of a", func() bool {
		if len(b.frames) == 0 {
			a.Send("b", []byte("frame")) // a frame may be lost
		}
		return len(b.frames) > 0
	})
	ctx := t.Context()
	if _, err := a.Propose(ctx, "b", []byte("this")); err != nil || !c.caller.Proven {
		t.Errorf("a call: %v, from %v", err, c.caller)
	}
	for node, want := range map[sharding.NodeID]error{"a": nil, "c": peer.ErrWrongIdentity} {
		member := meta.Member{Node: node, Address: "h:1", Incarnation: 5, Disk: "d"}
		for name, command := range map[string][]byte{
			"join": meta.Join(member), "put": meta.PutMember(member), "found": meta.CreateCluster(meta.Cluster{ID: "c", Shards: 1, Format: 1}, member),
		} {
			if _, err := a.Propose(ctx, "b", command); !errors.Is(err, want) {
				t.Errorf("a proposes to %s %s: %v", name, node, err)
			}
		}
		if _, err := a.Join(ctx, b.addr, &peerv1.JoinRequest{Member: &peerv1.Member{NodeId: string(node), Incarnation: 1}}); !errors.Is(err, want) {
			t.Errorf("a asks for the admission of %s: %v", node, err)
		}
	}

	for name, command := range map[string][]byte{
		"remove": meta.RemoveMember("c"), "down": meta.Down("c"), "drain": meta.SetDraining("c", 0, true), "place": meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{"a"}}), "retire": meta.Retire(1, 2),
	} {
		if _, err := a.Propose(ctx, "b", command); !errors.Is(err, peer.ErrRefused) {
			t.Errorf("a proposes to %s: %v", name, err)
		}
	}

	// A node with the certificate of a claims to be another node.
	c.caller = peer.Hello{}
	other := start(t, proven{dials: "b", serves: "b"}, "127.0.0.1:0", "c")
	defer other.stop(t)
	other.SetAddresses(map[sharding.NodeID]string{"b": b.addr})
	other.Send("b", []byte("forged"))
	if _, err := other.Propose(ctx, "b", []byte("this")); !errors.Is(err, peer.ErrWrongIdentity) {
		t.Errorf("a call under a different name: %v", err)
	}
	if _, err := other.Probe(ctx, b.addr); !errors.Is(err, peer.ErrWrongIdentity) {
		t.Errorf("a probe under a different name: %v", err)
	}
	if b.IsAlive("c") || c.caller.Node != "" {
		t.Errorf("a caller under a different name is accepted: %v", c.caller)
	}

	// A node that answers as b has the certificate of another node.
	caller := start(t, proven{dials: "b", serves: "x"}, "127.0.0.1:0", "a")
	defer caller.stop(t)
	caller.SetAddresses(map[sharding.NodeID]string{"b": b.addr})
	if _, err := caller.ReadMeta(ctx, "b"); !errors.Is(err, peer.ErrWrongIdentity) {
		t.Errorf("an answer under a different name: %v", err)
	}
	if _, err := caller.Probe(ctx, b.addr); !errors.Is(err, peer.ErrWrongIdentity) {
		t.Errorf("an answer without a name: %v", err)
	}
	if caller.IsAlive("b") {
		t.Error("a node that answers under a different name is alive")
	}
}
