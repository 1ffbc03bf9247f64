package moduleapi

import (
	"cmp"
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/status"
)

// VerifyModule replays histories, one shard after the other, each on the node that
// leads it.
func (s *handler) VerifyModule(ctx context.Context, r *connect.Request[modulev1.VerifyModuleRequest], stream *connect.ServerStream[modulev1.VerifyModuleResponse]) error {
	if s.Verifications == nil {
		return unserved.VerifyModule(ctx, r, stream)
	}
	digest, err := parseDigest(r.Msg.GetDigest())
	var serves modules.Type
	if err == nil {
		serves, err = s.Types.Lookup(ctx, r.Msg.GetEntityType())
	}
	if err == nil && uint32(r.Msg.GetShardId()) > s.Entities.Shards() {
		err = status.Argument("the shard does not exist")
	}
	if err == nil && !leaderproxy.FromPeer(ctx) { // the node that forwards the call has already authorized the caller
		err = s.owners.mayRun(ctx, r.Msg.GetEntityType(), digest)
	}
	if err == nil && !leaderproxy.FromPeer(ctx) {
		_, err = s.Modules.Get(ctx, digest)
	}
	if err != nil {
		return status.Public(s.Log, err)
	}
	guard, err := s.Streams.Enter(ctx)
	if err != nil {
		return status.Public(s.Log, err)
	}
	defer guard.Leave()
	// Send the headers now, because the first message may arrive late.
	if err := stream.Send(nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() { // this goroutine ends the call when the server stops
		select {
		case <-s.Streams.Stopping():
			cancel(admission.ErrStopping)
		case <-ended:
		}
	}()
	run := verification{
		Verifications: s.Verifications, Proxy: s.Proxy, Shards: s.Entities.Shards(),
		Request: r.Msg, Digest: digest, Revision: cmp.Or(r.Msg.GetRevision(), serves.Revision),
		Tell: func(m *modulev1.VerifyModuleResponse) error {
			guard.BeginWrite()
			defer guard.EndWrite()
			return stream.Send(m)
		},
	}
	if err := run.do(ctx); err != nil {
		return status.Public(s.Log, errors.Join(context.Cause(ctx), err))
	}
	last := run.report()
	if r.Msg.GetShardId() == 0 && !leaderproxy.FromPeer(ctx) {
		last.Stored, last.NotStoredReason = s.keep(ctx, &run, last)
	}
	return run.Tell(last)
}

// keep stores the result of a verification of all shards. If it cannot, it
// returns the reason.
func (s *handler) keep(ctx context.Context, v *verification, last *modulev1.VerifyModuleResponse) (kept bool, why string) {
	err := s.Modules.KeepVerified(ctx, v.Request.GetEntityType(), modules.VerifyResult{
		Digest: v.Digest, Revision: v.Revision, At: time.Now(), By: authorize.Caller(ctx), All: v.Request.GetAll(), Entities: last.GetEntities(), Events: last.GetEvents(),
		Differences: last.GetDifferingEntities(), Faults: last.GetFaultyEntities(), Uncompared: last.GetUncomparedEntities(), Truncated: last.GetTruncatedEntities(),
	})
	if err == nil {
		return true, ""
	}
	if refused := (*status.RefusedError)(nil); errors.As(err, &refused) {
		return false, refused.Reason
	}
	s.Log.Warn("cannot store the result of a verification", "entity_type", v.Request.GetEntityType(), "error", err)
	return false, "the metadata cannot be changed now"
}
