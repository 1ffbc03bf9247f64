package peer

import (
	"context"

	"connectrpc.com/connect"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding"
)

// BootstrapVote asks the node at an address for its bootstrap vote, or returns
// the vote to that node.
func (p *Peers) BootstrapVote(ctx context.Context, address string, r *peerv1.PledgeRequest) (*peerv1.PledgeResponse, error) {
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	through := &caller{base: p.calls, peers: p}
	res, err := newClient(through, "http://"+address).Pledge(ctx, connect.NewRequest(r))
	if err != nil {
		return nil, decodeError(sharding.NodeID(address), err)
	}
	return res.Msg, through.says(res.Msg.GetNodeId())
}

func (s *controlService) Pledge(ctx context.Context, r *connect.Request[peerv1.PledgeRequest]) (*connect.Response[peerv1.PledgeResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.PledgeResponse, error) {
		return s.peers.opts.Control.BootstrapVote(ctx, r.Msg)
	})
}
