package cluster_test

import (
	"context"
	"net/http"
	"testing"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// says is a node with a scripted answer to probes.
type says struct {
	peer.Control
	answer *peerv1.ProbeResponse
}

func (s *says) Probe(context.Context) (*peerv1.ProbeResponse, error) { return s.answer, nil }

// everybody regards all nodes as members.
type everybody struct{}

func (everybody) Standing(sharding.NodeID, uint64) peer.Standing { return peer.StandingMember }
func (everybody) Confirm(context.Context) error                  { return nil }

// noLoop is a raft loop without groups.
type noLoop struct{}

func (noLoop) Receive(sharding.NodeID, []byte) {}
func (noLoop) Turns() uint64                   { return 0 }

// answering starts a node that answers probes, and returns its address.
func answering(t *testing.T, id sharding.NodeID, control peer.Control) (*peer.Peers, string) {
	t.Helper()
	on := network.TCP{}
	p, err := peer.New(peer.Options{Self: id, Incarnation: 5, Cluster: "c", Network: on, Control: control, Raft: noLoop{}})
	if err != nil {
		t.Fatal(err)
	}
	p.SetMembers(everybody{})
	l, err := on.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux, protocols := http.NewServeMux(), new(http.Protocols)
	mux.Handle(p.Handler())
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols}
	go server.Serve(l)
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return p, l.Addr().String()
}

// A node regards itself as replaced only if both the leader of the metadata
// shard and the process with the later incarnation confirm this.
func TestReplacementNeedsTwoConfirmations(t *testing.T) {
	teller, other := &says{}, &says{}
	self, here := answering(t, "n4", &says{})
	_, leads := answering(t, "n1", teller)
	_, there := answering(t, "n4", other)
	for _, c := range []struct {
		name            string
		leader, cluster string
		start, runs     uint64
		address         string
		replaced        bool
	}{
		{"both say so", "n1", "c", 6, 6, there, true},
		{"one says so that does not lead", "n2", "c", 6, 6, there, false},
		{"one of another cluster", "n1", "d", 6, 6, there, false},
		{"the later start does not answer", "n1", "c", 6, 5, there, false},
		{"the start that is known is this one", "n1", "c", 5, 5, there, false},
		{"the start that is known is an earlier one", "n1", "c", 4, 4, there, false},
		{"this process is at the address", "n1", "c", 6, 6, here, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			teller.answer = &peerv1.ProbeResponse{ClusterId: c.cluster, NodeId: "n1", Leader: c.leader, Members: []*peerv1.Member{{NodeId: "n4", Incarnation: c.start, Address: c.address}}}
			other.answer = &peerv1.ProbeResponse{ClusterId: "c", NodeId: "n4", Incarnation: c.runs}
			e := cluster.Entry{Peers: self, Self: meta.Member{Node: "n4", Incarnation: 5, Address: here}, Seeds: []string{leads}}
			if at := e.ReplacedAt(t.Context(), []string{leads}); (at == there) != c.replaced || at != "" && !c.replaced {
				t.Errorf("replaced at %q", at)
			}
			if at := e.ReplacedAt(t.Context(), nil); at != "" {
				t.Errorf("a seed was believed: %q", at)
			}
		})
	}
}
