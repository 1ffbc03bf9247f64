package gossip

import (
	"context"
	"testing"
	"time"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/sharding/membership"
)

// Three nodes find each other over TCP, with a key and on ports that also serve
// HTTP. Then one node leaves.
func TestOverTCP(t *testing.T) {
	var nodes []*membership.Membership
	var first string
	for i := 1; i <= 3; i++ {
		l, err := network.TCP{}.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = l.Addr().String()
		}
		http, gossip := network.Split(l)
		m, err := membership.Start(t.Context(), membership.Options{
			Node: id(i), Incarnation: 1, Address: l.Addr().String(), Cluster: "c", Label: "tcp",
			Key: []byte("0123456789abcdef0123456789abcdef"), Seeds: []string{first},
			Transport: network.NewGossip(network.TCP{}, nil, gossip),
		})
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, m)
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := m.Close(ctx); err != nil {
				t.Error(err)
			}
			http.Close()
		}()
	}
	wait := func(m *membership.Membership, what string, done func([]membership.Peer) bool) {
		t.Helper()
		timeout := time.After(60 * time.Second)
		for {
			changed := m.Changes()
			if done(m.Nodes()) {
				return
			}
			select {
			case <-changed:
			case <-timeout:
				t.Fatalf("waited for %s in vain: %+v", what, m.Nodes())
			}
		}
	}
	for _, m := range nodes {
		wait(m, "two others", func(peers []membership.Peer) bool {
			return len(peers) == 2 && peers[0].Reachable && peers[1].Reachable
		})
	}
	if err := nodes[2].Leave(t.Context()); err != nil {
		t.Error(err)
	}
	for _, m := range nodes[:2] {
		wait(m, "n3 to leave", func(peers []membership.Peer) bool { return peers[1].Left && !peers[1].Reachable })
	}
}
