package cluster

import (
	"context"
	"errors"
	"testing"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding/membership"
	"github.com/hostd/hostd/sharding/meta"
)

// A starting node receives gossip before it has read its metadata from disk. It
// checks that gossip again afterwards.
func TestEarlyGossipIsVerifiedAgain(t *testing.T) {
	m, _ := newMetadata(t)
	view := meta.New().View()
	h := GossipVerifier{
		View:    func() *meta.View { return view },
		Cluster: func() string { return "c" },
		Probe: func(_ context.Context, address string) (*peerv1.ProbeResponse, error) {
			if address != "b" {
				return nil, errors.New("nobody listens there")
			}
			return &peerv1.ProbeResponse{NodeId: "n1", ClusterId: "c", Incarnation: 2}, nil
		},
	}
	said := []membership.Peer{{ID: "n1", Address: "b", Disk: "d", Cluster: "c", Incarnation: 2}}
	if moved, open := h.verify(t.Context(), said); len(moved) != 0 || open != 1 {
		t.Errorf("of a node that is no member yet: %v, %d to be looked at again", moved, open)
	}
	view = m.View()
	if moved, open := h.verify(t.Context(), said); len(moved) != 1 || open != 1 {
		t.Errorf("of a member: %v, %d to be looked at again", moved, open)
	}
	said[0].Address = "a"
	if moved, open := h.verify(t.Context(), said); len(moved) != 0 || open != 0 {
		t.Errorf("of a member that is where the metadata says: %v, %d to be looked at again", moved, open)
	}
}
