package cluster

import (
	"errors"
	"testing"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/peer"
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
