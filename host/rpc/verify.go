package rpc

import (
	"cmp"
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/rpc/admission"
	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/host/rpc/verification"
	"github.com/hostd/hostd/host/status"
)

// verifyService has the dependencies of Verify.
type verifyService struct {
	verifications verification.Verifications
	proxy         *leaderproxy.Proxy
	guard         *admission.Streams
	entities      entityapi.Entities
}

// Verify replays histories, one shard after the other, each on the node that
// leads it.
func (s *moduleService) Verify(ctx context.Context, r *connect.Request[modulev1.VerifyRequest], stream *connect.ServerStream[modulev1.VerifyResponse]) error {
	if s.verify.verifications == nil {
		return s.UnimplementedModuleServiceHandler.Verify(ctx, r, stream)
	}
	digest, err := parseDigest(r.Msg.GetDigest())
	var serves modules.Type
	if err == nil {
		serves, err = s.types.Lookup(ctx, r.Msg.GetEntityType())
	}
	if err == nil && uint32(r.Msg.GetShardId()) > s.verify.entities.Shards() {
		err = status.Argument("there is no such shard")
	}
	if err == nil && !leaderproxy.FromPeer(ctx) { // the node that forwards the call has already authorized the caller
		err = s.owners.mayRun(ctx, r.Msg.GetEntityType(), digest)
	}
	if err == nil && !leaderproxy.FromPeer(ctx) {
		_, err = s.modules.Get(ctx, digest)
	}
	if err != nil {
		return status.Public(s.log, err)
	}
	guard, err := s.verify.guard.Enter(ctx)
	if err != nil {
		return status.Public(s.log, err)
	}
	defer guard.Leave()
	// Send the headers now, because the first message may take long.
	if err := stream.Send(nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() { // ends the call when the server stops
		select {
		case <-s.verify.guard.Stopping():
			cancel(admission.ErrStopping)
		case <-ended:
		}
	}()
	run := verification.Run{
		Verifications: s.verify.verifications, Proxy: s.verify.proxy, Shards: s.verify.entities.Shards(),
		Request: r.Msg, Digest: digest, Revision: cmp.Or(r.Msg.GetRevision(), serves.Revision),
		Tell: func(m *modulev1.VerifyResponse) error {
			guard.BeginWrite()
			defer guard.EndWrite()
			return stream.Send(m)
		},
	}
	if err := run.Do(ctx); err != nil {
		return status.Public(s.log, errors.Join(context.Cause(ctx), err))
	}
	last := run.Report()
	if r.Msg.GetShardId() == 0 && !leaderproxy.FromPeer(ctx) {
		last.Kept, last.NotKept = s.keep(ctx, &run, last)
	}
	return run.Tell(last)
}

// keep stores the result of a verification of all shards. If it cannot, it
// returns the reason.
func (s *moduleService) keep(ctx context.Context, v *verification.Run, last *modulev1.VerifyResponse) (kept bool, why string) {
	err := s.modules.KeepVerified(ctx, v.Request.GetEntityType(), modules.VerifyResult{
		Digest: v.Digest, Revision: v.Revision, At: time.Now(), By: authorize.Caller(ctx), All: v.Request.GetAll(), Entities: last.GetEntities(), Events: last.GetEvents(),
		Differences: last.GetDifferingEntities(), Faults: last.GetFaultyEntities(), Uncompared: last.GetUncomparedEntities(), Cut: last.GetCutEntities(),
	})
	if err == nil {
		return true, ""
	}
	if refused := (*status.RefusedError)(nil); errors.As(err, &refused) {
		return false, refused.Reason
	}
	s.log.Warn("what came of a verification is not kept", "entity_type", v.Request.GetEntityType(), "error", err)
	return false, "the metadata cannot be changed now"
}
