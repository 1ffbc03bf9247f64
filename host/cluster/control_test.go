package cluster

import (
	"errors"
	"testing"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
)

// A node that does not lead the metadata shard cannot request leadership
// transfers.
func TestOnlyCoordinatorRequestsLeaderTransfers(t *testing.T) {
	m, _ := newMetadata(t)
	c := &Control{}
	c.Serve(&Member{opts: Options{Node: "n1", Metadata: m}})
	err := c.TransferLeaders(t.Context(), []*peerv1.Transfer{{ShardId: 1, From: "n2", To: "n1"}})
	if !errors.Is(err, peer.ErrUnavailable) {
		t.Errorf("asked by nobody, and n1 leads the metadata: %v", err)
	}
}

// deposed is the log of a node that takes itself for the leader, whose reads are
// not confirmed.
type deposed struct{ *committing }

func (deposed) ReadIndex(sharding.ShardID, uint64) error { return nil }

// A node that is not a member takes its absence from the members that the leader
// lists as proof that it was removed. A former leader does not know whether a
// later one has added it.
func TestProbeNamesOnlyConfirmedLeader(t *testing.T) {
	m, log := newMetadata(t)
	control := &Control{}
	control.Name("n1", 1, "c")
	control.Open(ControlOptions{Self: "n1", Metadata: m})
	if r, err := control.Probe(t.Context()); err != nil || r.GetLeader() != "n1" {
		t.Errorf("the leader names %q as leader: %v", r.GetLeader(), err)
	}
	m.Start(deposed{log}, nil, onlyOn("n1"))
	if r, err := control.Probe(t.Context()); err != nil || r.GetLeader() != "" || len(r.GetMembers()) != 1 {
		t.Errorf("a leader without a majority names %q as leader: %v", r.GetLeader(), err)
	}
}
