package peer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Digest identifies a module by the SHA-256 of its bytes.
type Digest = [sha256.Size]byte

// MaxBlobBytes bounds a module that is sent between nodes.
const MaxBlobBytes = 64 << 20

// Control answers the calls of other nodes. Its methods are called
// concurrently. Their contexts end with the call, at most 30 s after it began,
// and CallerOf returns the caller. If it is known that a call had no effect,
// its error wraps one of this package's errors or a *sharding.NotLeaderError;
// any other error reaches the caller as ErrUnknownOutcome. Requests belong to
// the callee; answers must not be modified afterwards.
type Control interface {
	// Probe returns the node's view of its cluster. Nodes outside the cluster
	// may ask.
	Probe(ctx context.Context) (*peerv1.ProbeResponse, error)
	// BootstrapVote answers a node that wants to bootstrap a cluster. Nodes outside
	// the cluster may ask.
	BootstrapVote(ctx context.Context, r *peerv1.PledgeRequest) (*peerv1.PledgeResponse, error)
	// Attest returns the latest known incarnation of the caller. If none is
	// later than the current incarnation, it durably records the current
	// one.
	Attest(ctx context.Context, r *peerv1.VouchRequest) (*peerv1.VouchResponse, error)
	// Join admits a node, on the leader of the metadata shard.
	Join(ctx context.Context, r *peerv1.JoinRequest) (*peerv1.JoinResponse, error)
	// PrepareClusterVersion returns the cluster versions that the node
	// supports. If version is not 0, it also converts the data directory to
	// that version. It fails with ErrRefused if the node does not support
	// that version.
	PrepareClusterVersion(ctx context.Context, version sharding.ClusterVersion) (*peerv1.PrepareLevelResponse, error)
	// Reach returns which of the given members the node cannot reach at their
	// addresses for nodes.
	Reach(ctx context.Context, nodes []*peerv1.StartAddress) ([]*peerv1.Unreached, error)
	// Propose runs a metadata command, on the leader.
	Propose(ctx context.Context, command []byte) (result []byte, err error)
	// ReadMeta returns the result of a ReadIndex round of the metadata shard,
	// on the leader.
	ReadMeta(ctx context.Context) (index uint64, err error)
	// Report accepts a node's report, on the leader of the metadata shard.
	Report(ctx context.Context, r *peerv1.ReportRequest) (*peerv1.ReportResponse, error)
	// Renew declares a node with damaged data dead if the other nodes have all
	// of its data.
	Renew(ctx context.Context, node sharding.NodeID) error
	// Sizes returns the sizes of all shards, on the node that runs the
	// coordinator.
	Sizes(ctx context.Context) ([]*peerv1.ShardSize, error)
	// CompareRows receives the checksum of the caller's replica of a shard
	// and returns the checksum of this node's replica at the same index. ok
	// is false if this node has no checksum at that index.
	CompareRows(ctx context.Context, shard sharding.ShardID, theirs sharding.ReplicaChecksum) (own sharding.RowsChecksum, ok bool, err error)
	// TransferLeaders transfers the leaderships that it can transfer at once.
	TransferLeaders(ctx context.Context, transfers []*peerv1.Transfer) error
	// Prepare fetches a module, from holder unless holder is empty, and
	// returns when the module can run.
	Prepare(ctx context.Context, module Digest, holder sharding.NodeID) error
	// AwaitActivations returns when the node serves all activations up to the
	// revision.
	AwaitActivations(ctx context.Context, revision uint64) error
	// Counts returns the counters of entity types that two modules serve, for
	// each of the two modules.
	Counts(ctx context.Context, entityTypes []string) ([]*peerv1.TypeCounts, error)
	// OpenBlob opens a module's bytes and returns their size. The caller
	// closes blob.
	OpenBlob(ctx context.Context, module Digest) (blob io.ReadCloser, size int64, err error)
	// PutBlob stores a module's bytes and returns when they are durable. blob
	// ends with io.EOF after size bytes with the right digest, or fails.
	PutBlob(ctx context.Context, module Digest, size int64, blob io.Reader) error
	// ReceiveSnapshot receives a snapshot, or answers a question about a
	// snapshot in at most 64 KiB. The header says which of the two it is.
	// body ends with io.EOF only if it is complete. body is valid during the
	// call, which may last as long as bytes arrive.
	ReceiveSnapshot(ctx context.Context, from sharding.NodeID, header []byte, body io.Reader) (answer []byte, err error)
}

// NoControl rejects every call. Embed it to reject the calls that a type does
// not implement.
type NoControl struct{}

var errNoControl = fmt.Errorf("%w: the node does not support this call", ErrUnavailable)

// Probe implements Control.
func (NoControl) Probe(context.Context) (*peerv1.ProbeResponse, error) { return nil, errNoControl }

// BootstrapVote implements Control.
func (NoControl) BootstrapVote(context.Context, *peerv1.PledgeRequest) (*peerv1.PledgeResponse, error) {
	return nil, errNoControl
}

// Attest implements Control.
func (NoControl) Attest(context.Context, *peerv1.VouchRequest) (*peerv1.VouchResponse, error) {
	return nil, errNoControl
}

// Join implements Control.
func (NoControl) Join(context.Context, *peerv1.JoinRequest) (*peerv1.JoinResponse, error) {
	return nil, errNoControl
}

// PrepareClusterVersion implements Control.
func (NoControl) PrepareClusterVersion(context.Context, sharding.ClusterVersion) (*peerv1.PrepareLevelResponse, error) {
	return nil, errNoControl
}

// Reach implements Control.
func (NoControl) Reach(context.Context, []*peerv1.StartAddress) ([]*peerv1.Unreached, error) {
	return nil, errNoControl
}

// Propose implements Control.
func (NoControl) Propose(context.Context, []byte) ([]byte, error) { return nil, errNoControl }

// ReadMeta implements Control.
func (NoControl) ReadMeta(context.Context) (uint64, error) { return 0, errNoControl }

// Report implements Control.
func (NoControl) Report(context.Context, *peerv1.ReportRequest) (*peerv1.ReportResponse, error) {
	return nil, errNoControl
}

// Renew implements Control.
func (NoControl) Renew(context.Context, sharding.NodeID) error { return errNoControl }

// Sizes implements Control.
func (NoControl) Sizes(context.Context) ([]*peerv1.ShardSize, error) { return nil, errNoControl }

// CompareRows implements Control.
func (NoControl) CompareRows(context.Context, sharding.ShardID, sharding.ReplicaChecksum) (own sharding.RowsChecksum, ok bool, err error) {
	return own, false, errNoControl
}

// TransferLeaders implements Control.
func (NoControl) TransferLeaders(context.Context, []*peerv1.Transfer) error { return errNoControl }

// Prepare implements Control.
func (NoControl) Prepare(context.Context, Digest, sharding.NodeID) error { return errNoControl }

// Counts implements Control.
func (NoControl) Counts(context.Context, []string) ([]*peerv1.TypeCounts, error) {
	return nil, errNoControl
}

// AwaitActivations implements Control.
func (NoControl) AwaitActivations(context.Context, uint64) error { return errNoControl }

// OpenBlob implements Control.
func (NoControl) OpenBlob(context.Context, Digest) (io.ReadCloser, int64, error) {
	return nil, 0, errNoControl
}

// PutBlob implements Control.
func (NoControl) PutBlob(context.Context, Digest, int64, io.Reader) error { return errNoControl }

// ReceiveSnapshot implements Control.
func (NoControl) ReceiveSnapshot(context.Context, sharding.NodeID, []byte, io.Reader) ([]byte, error) {
	return nil, errNoControl
}

// maxCallTime bounds a call that does not stream.
const maxCallTime = 30 * time.Second

// controlService answers calls through the node's Control.
type controlService struct{ peers *Peers }

// answer runs fn within the time limit of a call.
func answer[Res any](ctx context.Context, p *Peers, fn func(context.Context) (*Res, error)) (*connect.Response[Res], error) {
	ctx, cancel := context.WithTimeout(ctx, maxCallTime)
	defer cancel()
	res, err := fn(ctx)
	if err != nil {
		return nil, p.encodeError(err)
	}
	return connect.NewResponse(res), nil
}

// Link is served by Peers.link.
func (s *controlService) Link(context.Context, *connect.BidiStream[peerv1.LinkRequest, peerv1.LinkResponse]) error {
	return s.peers.encodeError(errNoControl)
}

func (s *controlService) Probe(ctx context.Context, _ *connect.Request[peerv1.ProbeRequest]) (*connect.Response[peerv1.ProbeResponse], error) {
	return answer(ctx, s.peers, s.peers.opts.Control.Probe)
}

func (s *controlService) Join(ctx context.Context, r *connect.Request[peerv1.JoinRequest]) (*connect.Response[peerv1.JoinResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.JoinResponse, error) {
		m, caller := r.Msg.GetMember(), CallerOf(ctx)
		if err := identify(m.GetNodeId(), string(caller.Node), caller.Proven); err != nil {
			return nil, err
		}
		if m.GetNodeId() != string(caller.Node) || m.GetIncarnation() != caller.Incarnation {
			return nil, fmt.Errorf("%w: node %s requests the admission of node %.200q", ErrRefused, caller.Node, m.GetNodeId())
		}
		return s.peers.opts.Control.Join(ctx, r.Msg)
	})
}

func (s *controlService) PrepareLevel(ctx context.Context, r *connect.Request[peerv1.PrepareLevelRequest]) (*connect.Response[peerv1.PrepareLevelResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.PrepareLevelResponse, error) {
		return s.peers.opts.Control.PrepareClusterVersion(ctx, sharding.ClusterVersion(r.Msg.GetLevel()))
	})
}

func (s *controlService) Reach(ctx context.Context, r *connect.Request[peerv1.ReachRequest]) (*connect.Response[peerv1.ReachResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.ReachResponse, error) {
		if n := len(r.Msg.GetNodes()); n > maxPeers {
			return nil, fmt.Errorf("%w: got %d nodes, at most %d are allowed", ErrRefused, n, maxPeers)
		}
		unreached, err := s.peers.opts.Control.Reach(ctx, r.Msg.GetNodes())
		return &peerv1.ReachResponse{Unreached: unreached}, err
	})
}

func (s *controlService) Propose(ctx context.Context, r *connect.Request[peerv1.ProposeRequest]) (*connect.Response[peerv1.ProposeResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.ProposeResponse, error) {
		if m, ok := meta.AdmittedMember(r.Msg.GetCommand()); ok {
			caller := CallerOf(ctx)
			if err := identify(string(m.Node), string(caller.Node), caller.Proven); err != nil {
				return nil, err
			}
		}
		if meta.IsCoordinatorCommand(r.Msg.GetCommand()) {
			return nil, fmt.Errorf("%w: only the coordinator changes members and replicas", ErrRefused)
		}
		result, err := s.peers.opts.Control.Propose(ctx, r.Msg.GetCommand())
		return &peerv1.ProposeResponse{Result: result}, err
	})
}

func (s *controlService) ReadMeta(ctx context.Context, _ *connect.Request[peerv1.ReadMetaRequest]) (*connect.Response[peerv1.ReadMetaResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.ReadMetaResponse, error) {
		index, err := s.peers.opts.Control.ReadMeta(ctx)
		return &peerv1.ReadMetaResponse{Index: index}, err
	})
}

func (s *controlService) Report(ctx context.Context, r *connect.Request[peerv1.ReportRequest]) (*connect.Response[peerv1.ReportResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.ReportResponse, error) {
		caller := CallerOf(ctx)
		if r.Msg.GetNodeId() != string(caller.Node) || r.Msg.GetIncarnation() != caller.Incarnation {
			return nil, fmt.Errorf("%w: node %s sent a report of node %.200q", ErrRefused, caller.Node, r.Msg.GetNodeId())
		}
		return s.peers.opts.Control.Report(ctx, r.Msg)
	})
}

func (s *controlService) Renew(ctx context.Context, _ *connect.Request[peerv1.RenewRequest]) (*connect.Response[peerv1.RenewResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.RenewResponse, error) {
		return &peerv1.RenewResponse{}, s.peers.opts.Control.Renew(ctx, CallerOf(ctx).Node)
	})
}

func (s *controlService) Sizes(ctx context.Context, _ *connect.Request[peerv1.SizesRequest]) (*connect.Response[peerv1.SizesResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.SizesResponse, error) {
		shards, err := s.peers.opts.Control.Sizes(ctx)
		return &peerv1.SizesResponse{Shards: shards}, err
	})
}

func (s *controlService) CompareRows(ctx context.Context, r *connect.Request[peerv1.CompareRowsRequest]) (*connect.Response[peerv1.CompareRowsResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.CompareRowsResponse, error) {
		theirs := sharding.ReplicaChecksum{Index: r.Msg.GetIndex()}
		if copy(theirs.Checksum[:], r.Msg.GetDigest()) != len(theirs.Checksum) || len(r.Msg.GetDigest()) != len(theirs.Checksum) {
			return nil, fmt.Errorf("%w: a digest has %d bytes", ErrRefused, len(r.Msg.GetDigest()))
		}
		own, ok, err := s.peers.opts.Control.CompareRows(ctx, sharding.ShardID(r.Msg.GetShardId()), theirs)
		out := &peerv1.CompareRowsResponse{}
		if ok {
			out.Digest = own[:]
		}
		return out, err
	})
}

func (s *controlService) HandOver(ctx context.Context, r *connect.Request[peerv1.HandOverRequest]) (*connect.Response[peerv1.HandOverResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.HandOverResponse, error) {
		return &peerv1.HandOverResponse{}, s.peers.opts.Control.TransferLeaders(ctx, r.Msg.GetTransfers())
	})
}

func (s *controlService) Prepare(ctx context.Context, r *connect.Request[peerv1.PrepareRequest]) (*connect.Response[peerv1.PrepareResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.PrepareResponse, error) {
		module, err := toDigest(r.Msg.GetDigest())
		if err == nil {
			err = s.peers.opts.Control.Prepare(ctx, module, sharding.NodeID(r.Msg.GetHolder()))
		}
		return &peerv1.PrepareResponse{}, err
	})
}

func (s *controlService) AwaitBindings(ctx context.Context, r *connect.Request[peerv1.AwaitBindingsRequest]) (*connect.Response[peerv1.AwaitBindingsResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.AwaitBindingsResponse, error) {
		return &peerv1.AwaitBindingsResponse{}, s.peers.opts.Control.AwaitActivations(ctx, r.Msg.GetRevision())
	})
}

func (s *controlService) Counts(ctx context.Context, r *connect.Request[peerv1.CountsRequest]) (*connect.Response[peerv1.CountsResponse], error) {
	return answer(ctx, s.peers, func(ctx context.Context) (*peerv1.CountsResponse, error) {
		types, err := s.peers.opts.Control.Counts(ctx, r.Msg.GetEntityTypes())
		return &peerv1.CountsResponse{Types: types}, err
	})
}

func toDigest(b []byte) (d Digest, err error) {
	if len(b) != len(d) {
		return d, fmt.Errorf("%w: a digest has %d bytes", ErrRefused, len(b))
	}
	copy(d[:], b)
	return d, nil
}
