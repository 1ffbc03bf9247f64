package cluster

import (
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/membership"
	"github.com/hostd/hostd/sharding/meta"
)

// unheeded ignores published addresses.
type unheeded struct{}

func (unheeded) SetAddresses(map[sharding.NodeID]string) {}

// A node that announced its client address in gossip, as nodes did before
// they had a separate listener, is called at its address for nodes. This
// holds even if the node announced a name and gossip knows only the IP
// address to which that name resolved.
func TestGossipIsSentToPeerAddress(t *testing.T) {
	m, _ := newMetadata(t)
	for _, c := range [][]byte{
		meta.RaiseClusterVersion(sharding.VersionPeerAddress, meta.Speaker{Node: "n1", Incarnation: 1, Speaks: sharding.SupportedVersions}),
		meta.Join(meta.Member{Node: "n2", Address: "n2.svc:7070", PeerAddress: "n2.svc:7071", Disk: "e", Incarnation: 2, Speaks: sharding.SupportedVersions}),
		meta.Join(meta.Member{Node: "n3", Address: "10.0.0.3:7070", PeerAddress: "10.0.0.3:7071", Disk: "f", Incarnation: 2, Speaks: sharding.SupportedVersions}),
	} {
		if _, err := m.Do(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	b := NewAddressBook("n1", unheeded{})
	b.learn(m.View())
	b.learnGossip([]membership.Peer{
		{ID: "n2", Address: "n2.svc:7070", Gossip: "10.0.0.2:7070", Incarnation: 2},
		{ID: "n3", Address: "10.0.0.3:7071", Gossip: "10.0.0.3:7071", Incarnation: 2},
		{ID: "n4", Address: "n2.svc:7070", Gossip: "10.0.0.4:7070", Incarnation: 2}, // not a member
		{ID: "n2", Address: "n2.svc:7070", Gossip: "10.0.0.3:7070", Incarnation: 2}, // the address of another member
	}, nil)
	for address, want := range map[string]string{
		"10.0.0.2:7070": "n2.svc:7071", "n2.svc:7070": "n2.svc:7071", "10.0.0.3:7070": "10.0.0.3:7071",
		"10.0.0.3:7071": "10.0.0.3:7071", "10.0.0.4:7070": "10.0.0.4:7070",
	} {
		if got := b.GossipAt(address); got != want {
			t.Errorf("gossip to %s goes to %s, not %s", address, got, want)
		}
	}
}
