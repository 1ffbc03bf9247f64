package peer

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding"
)

// Attest asks the node at an address for the latest incarnation of this node
// that it knows, and makes it record the current incarnation. Attest returns
// the node that answered. A member of an earlier release does not know the
// call and has recorded no incarnation, so its answer is empty.
func (p *Peers) Attest(ctx context.Context, address string, r *peerv1.VouchRequest) (sharding.NodeID, *peerv1.VouchResponse, error) {
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	through := &caller{base: p.calls, peers: p}
	client := newClient(through, "http://"+address)
	res, err := client.Vouch(ctx, connect.NewRequest(r))
	if err != nil {
		// If a server does not know a path, it answers in plain HTTP, and the
		// error contains none of its headers.
		var remote *connect.Error
		h := through.answered.Load()
		if errors.As(err, &remote) && remote.Code() == connect.CodeUnimplemented && len(remote.Details()) == 0 && h != nil && h.Cluster == p.Cluster() {
			return h.Node, &peerv1.VouchResponse{}, nil
		}
		return "", nil, decodeError(sharding.NodeID(address), err)
	}
	h, err := readHello(res.Header())
	if err != nil {
		return "", nil, err
	}
	if h.Cluster != p.Cluster() {
		return "", nil, fmt.Errorf("%w: node %s belongs to cluster %q", ErrWrongCluster, h.Node, h.Cluster)
	}
	return h.Node, res.Msg, nil
}

// Vouch answers any incarnation of the caller, even an outdated one, because
// the caller asks for its latest incarnation.
func (s *controlService) Vouch(ctx context.Context, r *connect.Request[peerv1.VouchRequest]) (*connect.Response[peerv1.VouchResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.VouchResponse, error) {
		own, caller := s.peers.Cluster(), CallerOf(ctx)
		switch {
		case own == "":
			return nil, fmt.Errorf("%w: node %s belongs to no cluster yet", ErrUnavailable, s.peers.opts.Self)
		case caller.Cluster != own:
			return nil, fmt.Errorf("%w: node %s belongs to cluster %q, node %s to %q", ErrWrongCluster, caller.Node, caller.Cluster, s.peers.opts.Self, own)
		case caller.Node == s.peers.opts.Self:
			return nil, fmt.Errorf("%w: a different process uses the node id %s", ErrWrongNode, caller.Node)
		}
		if err := s.peers.mayStart(caller); err != nil {
			return nil, err
		}
		return s.peers.opts.Control.Attest(ctx, r.Msg)
	})
}
