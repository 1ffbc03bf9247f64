package cluster

import (
	"context"
	"errors"
	"testing"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// answers are the nodes' answers to probes, by address.
type answers map[string]*peerv1.ProbeResponse

func (a answers) probe(_ context.Context, address string) (*peerv1.ProbeResponse, error) {
	if r, ok := a[address]; ok {
		return r, nil
	}
	return nil, errors.New("nobody listens there")
}

// probes answers probes of a node. together has the answers at addresses
// that serve both clients and nodes. apart has the answers at addresses that
// serve only nodes.
type probes struct{ together, apart answers }

func (p probes) Probe(ctx context.Context, address string) (*peerv1.ProbeResponse, error) {
	return p.together.probe(ctx, address)
}

func (p probes) ProbeAlone(ctx context.Context, address string) (*peerv1.ProbeResponse, error) {
	return p.apart.probe(ctx, address)
}

// At cluster version 1, nodes call each other only at their client
// addresses. So a node is probed at its client address before it is
// admitted, whatever other address it reports.
func TestClusterVersion1NeedsNoPeerListener(t *testing.T) {
	m, _ := newMetadata(t)
	n2 := meta.Member{Node: "n2", Address: "b:1", PeerAddress: "b:2", Disk: "e", Incarnation: 2, Speaks: sharding.SupportedVersions}
	said := answers{"b:1": {NodeId: "n2", Incarnation: 2, Address: "b:1"}}
	control := &Control{}
	control.Open(ControlOptions{Self: "n1", Metadata: m, Peers: probes{together: said}})
	if _, err := control.Join(t.Context(), &peerv1.JoinRequest{Member: memberToWire(n2)}); err != nil {
		t.Fatal(err)
	}
	if got, ok := m.View().Member("n2"); !ok || got.PeerEndpoint() != "b:1" {
		t.Errorf("admitted: %v, %+v", ok, got)
	}
}

// The address of a running member does not change, even if another process
// answers with the same incarnation. If the member no longer answers at its
// address, another address is accepted.
func TestRunningMemberKeepsItsAddress(t *testing.T) {
	m, _ := newMetadata(t)
	n1, _ := m.View().Member("n1")
	if _, err := m.Do(t.Context(), meta.RaiseClusterVersion(sharding.VersionPeerAddress, meta.Speaker{Node: "n1", Incarnation: 1, Speaks: sharding.SupportedVersions})); err != nil {
		t.Fatal(err)
	}
	said := answers{}
	o := &ControlOptions{Self: "n1", Metadata: m, Peers: probes{together: said}}
	n1.Speaks = sharding.SupportedVersions
	probed := &peerv1.ProbeResponse{NodeId: "n1", Incarnation: 1, ClusterId: "c", Address: n1.Address, PeerAddress: "a:2"}
	// Another process answers with the id and incarnation of n1 before n1 has
	// reported its peer address.
	n1.PeerAddress = "x:2"
	said["x:2"] = &peerv1.ProbeResponse{NodeId: "n1", Incarnation: 1, ClusterId: "c", Address: n1.Address, PeerAddress: "x:2"}
	said[n1.Address] = probed
	if err := o.verifyApplicant(t.Context(), n1); !errors.Is(err, peer.ErrUnavailable) {
		t.Errorf("where a stranger says, while the node says otherwise at its known address: %v", err)
	}
	n1.PeerAddress = "a:2"
	said["a:2"] = probed
	if err := o.verifyApplicant(t.Context(), n1); err != nil {
		t.Fatalf("this start says for the first time where it serves nodes: %v", err)
	}
	if _, err := m.Do(t.Context(), m.View().Join(n1)); err != nil {
		t.Fatal(err)
	}
	n1.PeerAddress = "x:2"
	if err := o.verifyApplicant(t.Context(), n1); !errors.Is(err, peer.ErrUnavailable) {
		t.Errorf("elsewhere, while it runs: %v", err)
	}
	delete(said, "a:2")
	if err := o.verifyApplicant(t.Context(), n1); err != nil {
		t.Errorf("elsewhere, once it serves there no more: %v", err)
	}
}
