package cluster

import (
	"strings"
	"testing"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding/meta"
)

// A member is reached if the right incarnation answers, as a node of the
// cluster, on a listener that serves only nodes. A node that is not a member
// is not called.
func TestReach(t *testing.T) {
	m, _ := newMetadata(t)
	n2 := meta.Member{Node: "n2", Address: "b:1", Status: meta.StatusUp, Disk: "e", Incarnation: 7}
	if _, err := m.Do(t.Context(), m.View().Join(n2)); err != nil {
		t.Fatal(err)
	}
	right := &peerv1.ProbeResponse{NodeId: "n2", Incarnation: 7, ClusterId: "c"}
	apart := answers{
		"right:1":   right,
		"node:1":    {NodeId: "n3", Incarnation: 7, ClusterId: "c"},
		"start:1":   {NodeId: "n2", Incarnation: 6, ClusterId: "c"},
		"cluster:1": {NodeId: "n2", Incarnation: 7, ClusterId: "d"},
		"none:1":    {NodeId: "n2", Incarnation: 7},
		"n9:1":      {NodeId: "n9", Incarnation: 7, ClusterId: "c"},
	}
	together := answers{"clients:1": right}
	control := &Control{}
	if _, err := control.Reach(t.Context(), nil); err == nil {
		t.Error("answered before the node was open")
	}
	control.Open(ControlOptions{Self: "n1", Metadata: m, Peers: probes{together, apart}})
	at := func(node, address string) *peerv1.StartAddress {
		return &peerv1.StartAddress{NodeId: node, Incarnation: 7, Address: address}
	}
	var ask []*peerv1.StartAddress
	for range 3 * reachAtOnce { // more than are called concurrently
		ask = append(ask, at("n2", "right:1"))
	}
	if unreached, err := control.Reach(t.Context(), ask); err != nil || len(unreached) != 0 {
		t.Errorf("not reached: %v, %v", unreached, err)
	}
	if unreached, err := control.Reach(t.Context(), []*peerv1.StartAddress{at("n1", "self:1")}); err != nil || len(unreached) != 0 {
		t.Errorf("the node asks itself: %v, %v", unreached, err)
	}
	for _, tt := range []struct{ node, address, reason string }{
		{"n2", "node:1", "node n3 answered"},
		{"n2", "start:1", "start 6 of the node answered instead of start 7"},
		{"n2", "cluster:1", `of cluster "d"`},
		{"n2", "none:1", `of cluster ""`},
		{"n2", "nobody:1", "nobody listens there"},
		{"n2", "clients:1", "nobody listens there"},
		{"n9", "n9:1", "does not know the member"},
	} {
		unreached, err := control.Reach(t.Context(), []*peerv1.StartAddress{at("n2", "right:1"), at(tt.node, tt.address)})
		if err != nil || len(unreached) != 1 || unreached[0].GetNodeId() != tt.node || !strings.Contains(unreached[0].GetReason(), tt.reason) {
			t.Errorf("%s at %s: %v, %v", tt.node, tt.address, unreached, err)
		}
	}
}
