package backup

import (
	"context"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/archive"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// local is this node's own part.
type local struct{ p *Part }

func (h local) FreezeExecutors(_ context.Context, _ string, d time.Duration) error {
	h.p.FreezeExecutors(d)
	return nil
}

func (h local) Cut(ctx context.Context, export string, shards []sharding.ShardID) ([]archive.Shard, error) {
	cuts, err := h.p.Cut(ctx, export, shards)
	out := make([]archive.Shard, len(cuts))
	for i, c := range cuts {
		out[i] = archive.Shard{ID: c.Shard, Index: c.Index, Term: c.Term, Clock: c.Clock}
	}
	return out, err
}

func (h local) Confirm(ctx context.Context, shards []sharding.ShardID) ([]uint64, error) {
	return h.p.Confirm(ctx, shards)
}

func (h local) Release(_ context.Context, export string, cuts bool) error {
	h.p.Release(export, cuts)
	return nil
}

func (h local) ReadCut(ctx context.Context, export string, shard sharding.ShardID, fn func([]byte) error) error {
	return h.p.ReadCut(ctx, export, shard, fn)
}

func (h local) State(ctx context.Context, shards []sharding.ShardID) ([]State, error) {
	return h.p.State(ctx, shards)
}

func (h local) Chunk(ctx context.Context, shard sharding.ShardID, body []byte) error {
	return h.p.Chunk(ctx, shard, body)
}

// maxMessageBytes bounds a message between nodes, which has some parts or a
// chunk.
const maxMessageBytes = 4 << 20

// Handler serves a Part to other nodes.
func Handler(p *Part, around ...connect.Interceptor) (path string, handler http.Handler) {
	return peerv1connect.NewTransferServiceHandler(service{p}, connect.WithInterceptors(around...), connect.WithReadMaxBytes(maxMessageBytes), connect.WithCompression("gzip", nil, nil))
}

// service answers calls of other nodes for the shards that this node leads.
type service struct{ p *Part }

// errorKind is an error header that says how the caller should react.
const errorKind = "Hostd-Transfer-Error"

var kinds = []struct {
	name string
	err  error
}{
	{"unknown", errUnknownOutcome}, {"cut", errUnknownCut}, {"many", errTooMany},
	{"not-empty", eventlog.ErrNotEmpty}, {"invalid", eventlog.ErrInvalid}, {"damaged", journal.ErrDamaged},
}

func encode(err error) error {
	if err == nil {
		return nil
	}
	out := connect.NewError(connect.CodeInternal, err)
	var notLeader *sharding.NotLeaderError
	if errors.As(err, &notLeader) {
		out.Meta().Set(errorKind, "leader")
		return out
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			out.Meta().Set(errorKind, k.name)
			return out
		}
	}
	return out
}

// remoteError is an error returned by another node.
type remoteError struct {
	text string
	kind error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

// decode restores the error that another node encoded. It returns
// errUnreachable for an error on the way to the node.
func decode(ctx context.Context, err error) error {
	var theirs *connect.Error
	if err == nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if !errors.As(err, &theirs) || !connect.IsWireError(err) {
		return &remoteError{err.Error(), errUnreachable}
	}
	kind := theirs.Meta().Get(errorKind)
	if kind == "leader" {
		return &remoteError{theirs.Message(), &sharding.NotLeaderError{}}
	}
	for _, k := range kinds {
		if k.name == kind {
			return &remoteError{theirs.Message(), k.err}
		}
	}
	if theirs.Code() == connect.CodeUnavailable {
		return &remoteError{theirs.Message(), errUnreachable}
	}
	return theirs
}

func ids(shards []uint32) []sharding.ShardID {
	out := make([]sharding.ShardID, len(shards))
	for i, s := range shards {
		out[i] = sharding.ShardID(s)
	}
	return out
}

func numbers(shards []sharding.ShardID) []uint32 {
	out := make([]uint32, len(shards))
	for i, s := range shards {
		out[i] = uint32(s)
	}
	return out
}

func (s service) Hold(_ context.Context, r *connect.Request[peerv1.HoldRequest]) (*connect.Response[peerv1.HoldResponse], error) {
	s.p.FreezeExecutors(time.Duration(r.Msg.GetMilliseconds()) * time.Millisecond)
	return connect.NewResponse(&peerv1.HoldResponse{}), nil
}

func (s service) Cut(ctx context.Context, r *connect.Request[peerv1.CutRequest]) (*connect.Response[peerv1.CutResponse], error) {
	cuts, err := local(s).Cut(ctx, r.Msg.GetExport(), ids(r.Msg.GetShards()))
	out := &peerv1.CutResponse{}
	for _, c := range cuts {
		out.Cuts = append(out.Cuts, &peerv1.CutResponse_Cut{Shard: uint32(c.ID), Index: c.Index, Term: uint64(c.Term), Clock: c.Clock})
	}
	return connect.NewResponse(out), encode(err)
}

func (s service) Confirm(ctx context.Context, r *connect.Request[peerv1.ConfirmRequest]) (*connect.Response[peerv1.ConfirmResponse], error) {
	indexes, err := s.p.Confirm(ctx, ids(r.Msg.GetShards()))
	return connect.NewResponse(&peerv1.ConfirmResponse{Indexes: indexes}), encode(err)
}

func (s service) Release(_ context.Context, r *connect.Request[peerv1.ReleaseRequest]) (*connect.Response[peerv1.ReleaseResponse], error) {
	s.p.Release(r.Msg.GetExport(), r.Msg.GetCuts())
	return connect.NewResponse(&peerv1.ReleaseResponse{}), nil
}

func (s service) ReadCut(ctx context.Context, r *connect.Request[peerv1.ReadCutRequest], stream *connect.ServerStream[peerv1.ReadCutResponse]) error {
	return encode(s.p.ReadCut(ctx, r.Msg.GetExport(), sharding.ShardID(r.Msg.GetShard()), func(parts []byte) error {
		return stream.Send(&peerv1.ReadCutResponse{Parts: parts})
	}))
}

func (s service) ImportState(ctx context.Context, r *connect.Request[peerv1.ImportStateRequest]) (*connect.Response[peerv1.ImportStateResponse], error) {
	states, err := s.p.State(ctx, ids(r.Msg.GetShards()))
	out := &peerv1.ImportStateResponse{}
	for _, st := range states {
		m := &peerv1.ImportStateResponse_State{Shard: uint32(st.Shard), Next: st.Next, Complete: st.Complete, Entities: st.Entities}
		if st.Begun {
			m.Import = st.ID[:]
		}
		out.States = append(out.States, m)
	}
	return connect.NewResponse(out), encode(err)
}

func (s service) ImportChunk(ctx context.Context, r *connect.Request[peerv1.ImportChunkRequest]) (*connect.Response[peerv1.ImportChunkResponse], error) {
	err := s.p.Chunk(ctx, sharding.ShardID(r.Msg.GetShard()), r.Msg.GetBody())
	return connect.NewResponse(&peerv1.ImportChunkResponse{}), encode(err)
}

// remoteAt returns the part of the node at a URL.
func remoteAt(client *http.Client, base string) node {
	return remote{peerv1connect.NewTransferServiceClient(client, base, connect.WithReadMaxBytes(maxMessageBytes), connect.WithAcceptCompression("gzip", nil, nil))}
}

// remote is another node's part.
type remote struct {
	client peerv1connect.TransferServiceClient
}

func (t remote) FreezeExecutors(ctx context.Context, export string, d time.Duration) error {
	_, err := t.client.Hold(ctx, connect.NewRequest(&peerv1.HoldRequest{Export: export, Milliseconds: uint32(d.Milliseconds())}))
	return decode(ctx, err)
}

func (t remote) Cut(ctx context.Context, export string, shards []sharding.ShardID) ([]archive.Shard, error) {
	res, err := t.client.Cut(ctx, connect.NewRequest(&peerv1.CutRequest{Export: export, Shards: numbers(shards)}))
	if err != nil {
		return nil, decode(ctx, err)
	}
	var out []archive.Shard
	for _, c := range res.Msg.GetCuts() {
		out = append(out, archive.Shard{ID: sharding.ShardID(c.GetShard()), Index: c.GetIndex(), Term: sharding.Term(c.GetTerm()), Clock: c.GetClock()})
	}
	return out, nil
}

func (t remote) Confirm(ctx context.Context, shards []sharding.ShardID) ([]uint64, error) {
	res, err := t.client.Confirm(ctx, connect.NewRequest(&peerv1.ConfirmRequest{Shards: numbers(shards)}))
	if err != nil {
		return nil, decode(ctx, err)
	}
	return res.Msg.GetIndexes(), nil
}

func (t remote) Release(ctx context.Context, export string, cuts bool) error {
	_, err := t.client.Release(ctx, connect.NewRequest(&peerv1.ReleaseRequest{Export: export, Cuts: cuts}))
	return decode(ctx, err)
}

func (t remote) ReadCut(ctx context.Context, export string, shard sharding.ShardID, fn func([]byte) error) error {
	in, err := t.client.ReadCut(ctx, connect.NewRequest(&peerv1.ReadCutRequest{Export: export, Shard: uint32(shard)}))
	if err != nil {
		return decode(ctx, err)
	}
	defer in.Close()
	for in.Receive() {
		if err := fn(in.Msg().GetParts()); err != nil {
			return err
		}
	}
	return decode(ctx, in.Err())
}

func (t remote) State(ctx context.Context, shards []sharding.ShardID) ([]State, error) {
	res, err := t.client.ImportState(ctx, connect.NewRequest(&peerv1.ImportStateRequest{Shards: numbers(shards)}))
	if err != nil {
		return nil, decode(ctx, err)
	}
	var out []State
	for _, m := range res.Msg.GetStates() {
		s := State{Shard: sharding.ShardID(m.GetShard()), Next: m.GetNext(), Complete: m.GetComplete(), Entities: m.GetEntities()}
		s.Begun = copy(s.ID[:], m.GetImport()) == len(s.ID)
		out = append(out, s)
	}
	return out, nil
}

func (t remote) Chunk(ctx context.Context, shard sharding.ShardID, body []byte) error {
	_, err := t.client.ImportChunk(ctx, connect.NewRequest(&peerv1.ImportChunkRequest{Shard: uint32(shard), Body: body}))
	return decode(ctx, err)
}
