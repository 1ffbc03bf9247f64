package peer

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/sharding"
)

// anyAddress is the base of URLs whose host is replaced by the node's address.
const anyAddress = "http://peer"

func newClient(transport http.RoundTripper, base string) peerv1connect.PeerServiceClient {
	return peerv1connect.NewPeerServiceClient(&http.Client{Transport: transport}, base,
		noCompression, connect.WithReadMaxBytes(maxCallBytes), connect.WithSendMaxBytes(maxCallBytes))
}

// Client returns an HTTP client and a base URL for other services of a node.
// Calls go to the node's current address, carry this node's hello, and fail if
// a different node answers. The node must serve these services behind Admit.
// The caller sets deadlines. Client fails if the node is not known.
func (p *Peers) Client(node sharding.NodeID) (client *http.Client, baseURL string, err error) {
	q, err := p.peerOf(node)
	if err != nil {
		return nil, "", err
	}
	return &http.Client{Transport: &caller{base: p.calls, peers: p, to: q, follow: true}}, anyAddress, nil
}

func (p *Peers) peerOf(node sharding.NodeID) (*peer, error) {
	q := (*p.table.Load())[node]
	if q == nil {
		return nil, fmt.Errorf("%w: the address of node %s is unknown", ErrUnreachable, node)
	}
	return q, nil
}

// withTimeout adds CallTimeout to a context without a deadline.
func (p *Peers) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, p.opts.CallTimeout)
}

// call makes a unary call to a node.
func call[Req, Res any](ctx context.Context, p *Peers, node sharding.NodeID, method func(peerv1connect.PeerServiceClient, context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) (*Res, error) {
	q, err := p.peerOf(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	res, err := method(q.calls, ctx, connect.NewRequest(req))
	if err != nil {
		return nil, p.noteReplaced(decodeError(node, err))
	}
	return res.Msg, nil
}

// Probe asks which node answers at an address.
func (p *Peers) Probe(ctx context.Context, address string) (*peerv1.ProbeResponse, error) {
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	return p.probe(ctx, &caller{base: p.calls, peers: p}, address)
}

// ProbeAlone is Probe for an address that serves only nodes. It makes a new
// connection to show that nodes can connect to the address.
func (p *Peers) ProbeAlone(ctx context.Context, address string) (*peerv1.ProbeResponse, error) {
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	return p.probe(ctx, &caller{base: p.calls, peers: p, alone: true}, address)
}

func (p *Peers) probe(ctx context.Context, through *caller, address string) (*peerv1.ProbeResponse, error) {
	res, err := newClient(through, "http://"+address).Probe(ctx, connect.NewRequest(&peerv1.ProbeRequest{}))
	if err != nil {
		return nil, decodeError(sharding.NodeID(address), err)
	}
	return res.Msg, through.says(res.Msg.GetNodeId())
}

// Reach asks a node which of the given members it cannot reach at their
// addresses for nodes. It fails with ErrFormat if the node's release does not
// support the call.
func (p *Peers) Reach(ctx context.Context, node sharding.NodeID, others []*peerv1.StartAddress) ([]*peerv1.Unreached, error) {
	res, err := call(ctx, p, node, peerv1connect.PeerServiceClient.Reach, &peerv1.ReachRequest{Nodes: others})
	var remote *connect.Error
	if errors.As(err, &remote) && remote.Code() == connect.CodeUnimplemented {
		return nil, fmt.Errorf("%w: the release of node %s does not support this call", ErrFormat, node)
	}
	return res.GetUnreached(), err
}

// Join asks the node at an address to admit this node.
func (p *Peers) Join(ctx context.Context, address string, r *peerv1.JoinRequest) (*peerv1.JoinResponse, error) {
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	client := newClient(&caller{base: p.calls, peers: p}, "http://"+address)
	res, err := client.Join(ctx, connect.NewRequest(r))
	if err != nil {
		return nil, decodeError(sharding.NodeID(address), err)
	}
	return res.Msg, nil
}

// PrepareClusterVersion asks a node which cluster versions it supports and, if
// version is not 0, makes it convert its data directory to that version. It
// fails with ErrFormat if the node runs the first release, which does not
// know the call and supports only sharding.Version1.
func (p *Peers) PrepareClusterVersion(ctx context.Context, node sharding.NodeID, version sharding.ClusterVersion) (*peerv1.PrepareLevelResponse, error) {
	res, err := call(ctx, p, node, peerv1connect.PeerServiceClient.PrepareLevel, &peerv1.PrepareLevelRequest{Level: uint32(version)})
	var remote *connect.Error
	if errors.As(err, &remote) && remote.Code() == connect.CodeUnimplemented {
		return nil, fmt.Errorf("%w: node %s supports %v", ErrFormat, node, sharding.VersionRange{})
	}
	return res, err
}

// Speaks returns the range of cluster versions that a node last reported. It
// returns false if nothing was heard from the node.
func (p *Peers) Speaks(node sharding.NodeID) (sharding.VersionRange, bool) {
	q := (*p.table.Load())[node]
	if q == nil {
		return sharding.VersionRange{}, false
	}
	said := q.speaks.Load()
	if said == nil {
		return sharding.VersionRange{}, false
	}
	return *said, true
}

// Renew asks the node at an address whether this node may discard its data.
func (p *Peers) Renew(ctx context.Context, address string) error {
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	client := newClient(&caller{base: p.calls, peers: p}, "http://"+address)
	_, err := client.Renew(ctx, connect.NewRequest(&peerv1.RenewRequest{}))
	if err != nil {
		return decodeError(sharding.NodeID(address), err)
	}
	return nil
}

// Counts asks a node for its counters of entity types that two modules serve,
// for each of the two modules.
func (p *Peers) Counts(ctx context.Context, node sharding.NodeID, entityTypes []string) ([]*peerv1.TypeCounts, error) {
	res, err := call(ctx, p, node, peerv1connect.PeerServiceClient.Counts, &peerv1.CountsRequest{EntityTypes: entityTypes})
	return res.GetTypes(), err
}

// Propose makes a node run a metadata command and returns the state machine's
// result. If the error wraps ErrUnknownOutcome, the command may take effect;
// any other error means that it had no effect.
func (p *Peers) Propose(ctx context.Context, node sharding.NodeID, command []byte) (result []byte, err error) {
	res, err := call(ctx, p, node, peerv1connect.PeerServiceClient.Propose, &peerv1.ProposeRequest{Command: command})
	return res.GetResult(), err
}

// ReadMeta returns an index of the metadata shard that is at least as high as
// every index committed before the call.
func (p *Peers) ReadMeta(ctx context.Context, node sharding.NodeID) (index uint64, err error) {
	res, err := call(ctx, p, node, peerv1connect.PeerServiceClient.ReadMeta, &peerv1.ReadMetaRequest{})
	return res.GetIndex(), err
}

// Report sends this node's report to the leader of the metadata shard. The
// answer contains that node's requests and its view of the cluster.
func (p *Peers) Report(ctx context.Context, leader sharding.NodeID, r *peerv1.ReportRequest) (*peerv1.ReportResponse, error) {
	return call(ctx, p, leader, peerv1connect.PeerServiceClient.Report, r)
}

// Sizes asks the leader of the metadata shard for the sizes of all shards.
func (p *Peers) Sizes(ctx context.Context, leader sharding.NodeID) ([]*peerv1.ShardSize, error) {
	r, err := call(ctx, p, leader, peerv1connect.PeerServiceClient.Sizes, &peerv1.SizesRequest{})
	return r.GetShards(), err
}

// CompareRows sends a node the checksum of this node's replica of a shard. It
// returns the checksum of that node's replica at the same index, or false if
// that node has no checksum at this index.
func (p *Peers) CompareRows(ctx context.Context, node sharding.NodeID, shard sharding.ShardID, own sharding.ReplicaChecksum) (theirs sharding.RowsChecksum, ok bool, err error) {
	r, err := call(ctx, p, node, peerv1connect.PeerServiceClient.CompareRows, &peerv1.CompareRowsRequest{
		ShardId: uint32(shard), Index: own.Index, Digest: own.Checksum[:],
	})
	if err != nil || len(r.GetDigest()) != len(theirs) {
		return theirs, false, err
	}
	return sharding.RowsChecksum(r.GetDigest()), true, nil
}

// TransferLeaders asks a node to transfer leaderships now.
func (p *Peers) TransferLeaders(ctx context.Context, node sharding.NodeID, transfers []*peerv1.Transfer) error {
	_, err := call(ctx, p, node, peerv1connect.PeerServiceClient.HandOver, &peerv1.HandOverRequest{Transfers: transfers})
	return err
}

// Prepare makes a node fetch a module, from holder unless holder is empty,
// and returns when the module can run on the node.
func (p *Peers) Prepare(ctx context.Context, node sharding.NodeID, module Digest, holder sharding.NodeID) error {
	_, err := call(ctx, p, node, peerv1connect.PeerServiceClient.Prepare, &peerv1.PrepareRequest{Digest: module[:], Holder: string(holder)})
	return err
}

// AwaitActivations returns when a node serves all activations up to the revision.
func (p *Peers) AwaitActivations(ctx context.Context, node sharding.NodeID, revision uint64) error {
	_, err := call(ctx, p, node, peerv1connect.PeerServiceClient.AwaitBindings, &peerv1.AwaitBindingsRequest{Revision: revision})
	return err
}
