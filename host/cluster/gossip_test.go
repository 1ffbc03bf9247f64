package cluster

import (
	"testing"

	"github.com/hostd/hostd/sharding/membership"
	"github.com/hostd/hostd/sharding/meta"
)

// A starting node receives gossip before it has read its metadata from disk. It
// checks that gossip again afterwards.
func TestEarlyGossipIsVerifiedAgain(t *testing.T) {
	m, _ := newMetadata(t)
	h := GossipVerifier{
		Metadata: NewMetadata(meta.New(), 0), Cluster: "c",
		Peers: probes{together: answers{"b": {NodeId: "n1", ClusterId: "c", Incarnation: 2}}},
	}
	said := []membership.Peer{{ID: "n1", Address: "b", Disk: "d", Cluster: "c", Incarnation: 2}}
	if moved, open := h.verify(t.Context(), said); len(moved) != 0 || open != 1 {
		t.Errorf("of a node that is no member yet: %v, %d to be looked at again", moved, open)
	}
	h.Metadata = m
	if moved, open := h.verify(t.Context(), said); len(moved) != 1 || open != 1 {
		t.Errorf("of a member: %v, %d to be looked at again", moved, open)
	}
	said[0].Address = "a"
	if moved, open := h.verify(t.Context(), said); len(moved) != 0 || open != 0 {
		t.Errorf("of a member that is where the metadata says: %v, %d to be looked at again", moved, open)
	}
}
