package moduleapi

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// compatibility runs the compatibility check: it compares a module with the stored
// entities of a shard that this node leads.
type compatibility interface {
	// CheckCompatibility takes at most slightly longer than twice q.Budget.
	CheckCompatibility(ctx context.Context, q modules.CompatibilityQuery) (modules.Compatibility, error)
}

const (
	// checkSample is how many entities are replayed if the caller sets no number.
	checkSample = 20
	// checkShardSample is the minimum sample of each shard until checkSample
	// entities were replayed, because the entities may be in few shards.
	checkShardSample = 5
	// checkBudget is the time for one shard if the caller sets none.
	checkBudget = 2 * time.Second
	// checkWait limits the check of all shards together.
	checkWait = 10 * time.Second
	// checkPacedWait limits one paced check of a shard, and checkPause is the
	// pause between two such checks.
	checkPacedWait = 2 * time.Minute
	checkPause     = 100 * time.Millisecond
)

// CheckCompatibility compares a module with the stored entities of a type.
func (s *handler) CheckCompatibility(ctx context.Context, r *connect.Request[modulev1.CheckCompatibilityRequest]) (*connect.Response[modulev1.CheckCompatibilityResponse], error) {
	if s.Compatibility == nil {
		return unserved.CheckCompatibility(ctx, r)
	}
	digest, err := parseDigest(r.Msg.GetDigest())
	if err == nil {
		_, err = s.Types.Lookup(ctx, r.Msg.GetEntityType())
	}
	peer := leaderproxy.FromPeer(ctx)
	switch only := r.Msg.GetShardId(); {
	case err != nil:
	case only > s.Entities.Shards():
		err = status.Argument("the shard does not exist")
	case peer && only == 0:
		err = status.Argument("a call from another node must name one shard")
	case !peer: // the node that forwards the call has already authorized the caller
		if err = s.owners.mayRun(ctx, r.Msg.GetEntityType(), digest); err == nil {
			_, err = s.Modules.Get(ctx, digest)
		}
	}
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	out, err := s.checkShards(ctx, digest, r.Msg)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(out), nil
}

// checkShards checks one shard, or all shards in random order. It logs and
// counts the shards that it cannot check.
func (s *handler) checkShards(ctx context.Context, digest journal.Digest, r *modulev1.CheckCompatibilityRequest) (*modulev1.CheckCompatibilityResponse, error) {
	before, err := parseDigests(r.GetExcludeWrittenBy())
	if err != nil {
		return nil, err
	}
	q := modules.CompatibilityQuery{
		ExcludeWrittenBy: before, Initial: meta.Part{Share: r.GetInitialShare(), Prefix: r.GetInitialPrefix()}, Current: meta.Part{Share: r.GetCurrentShare(), Prefix: r.GetCurrentPrefix()}, MinRevision: r.GetMinActivationRevision(),
		Shard: sharding.ShardID(r.GetShardId()), EntityType: r.GetEntityType(), Digest: digest, Sample: int(cmp.Or(r.GetSample(), checkSample)),
		Draw: rand.IntN, Budget: cmp.Or(r.GetShardTime().AsDuration(), checkBudget), PresenceOnly: r.GetPresenceOnly(),
		TruncatedOnly: r.GetTruncatedOnly(), IncludeSnapshots: r.GetIncludeSnapshots(), Paced: r.GetPaced(), AcceptDifferences: r.GetAcceptDifferences(),
	}
	if q.Shard != 0 {
		return s.checkShard(ctx, q)
	}
	if len(before) > 0 || q.TruncatedOnly {
		return s.checkTouched(ctx, q)
	}
	end, left, most := time.Now().Add(checkWait), q.Sample, q.Budget
	all := newCompatibilitySum()
	shards := rand.Perm(int(s.Entities.Shards()))
	for i, at := range shards {
		rest := len(shards) - i
		if q.Budget = min(most, time.Until(end)); q.Budget <= 0 {
			all.unread(rest)
			break
		}
		if q.Shard, q.Sample = sharding.ShardID(at+1), 0; left > 0 {
			q.Sample = max(checkShardSample, (left+rest-1)/rest)
		}
		one, err := s.checkShard(ctx, q)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if coded := status.Coded(nil); errors.As(err, &coded) && coded.Code() == connect.CodePermissionDenied {
			return nil, err // the module's signature does not allow it to run on any shard
		}
		if err != nil {
			s.Log.Warn("cannot compare a module with the data of a shard", "entity_type", q.EntityType, "shard_id", q.Shard, "error", err)
			all.unread(1)
			continue
		}
		all.add(one)
		left = max(0, left-int(one.GetEntities()))
	}
	return all.answer(), nil
}

// checkWholeShard repeats the paced check of one shard until the whole shard was compared
// or an incompatibility is found.
func (s *handler) checkWholeShard(ctx context.Context, q modules.CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
	for {
		out, err := s.checkShard(ctx, q)
		if err != nil || out.GetUncheckedShards() == 0 || isIncompatible(q, out) || !out.GetTruncatedCompared() {
			return out, err
		}
		select {
		case <-time.After(checkPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// isIncompatible reports whether, according to the result, the module must
// not replace the active one.
func isIncompatible(q modules.CompatibilityQuery, found *modulev1.CheckCompatibilityResponse) bool {
	return found.GetFaultyEntities() > 0 || found.GetDifferingEntities() > 0 && !q.AcceptDifferences
}

// checkShard checks one shard on the node that leads it, and retries when the
// leadership moves.
func (s *handler) checkShard(ctx context.Context, q modules.CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
	wait := checkWait + 2*q.Budget
	if q.Paced { // a paced check waits for its turn and never stops in the middle of an entity
		wait = checkPacedWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var search leaderproxy.Search
	for {
		changed := s.Proxy.Changed()
		out, err := s.checkShardOnce(ctx, q)
		if connect.CodeOf(err) == connect.CodeUnimplemented { // a node of the previous release does not implement the call
			return nil, leaderproxy.CallerError(err)
		}
		if err == nil || !leaderproxy.Retry(err) || !search.Again(ctx, s.Proxy, q.Shard, changed, err) {
			return out, leaderproxy.CallerError(err)
		}
	}
}

func (s *handler) checkShardOnce(ctx context.Context, q modules.CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
	leader, err := s.Proxy.LeaderModules(ctx, q.Shard)
	if err != nil {
		return nil, err
	}
	if leader != nil {
		res, err := leader.CheckCompatibility(ctx, connect.NewRequest(&modulev1.CheckCompatibilityRequest{
			Digest: q.Digest.String(), EntityType: q.EntityType, Sample: uint32(max(1, q.Sample)), ShardId: uint32(q.Shard),
			ShardTime: durationpb.New(max(q.Budget, time.Millisecond)), PresenceOnly: q.PresenceOnly, ExcludeWrittenBy: digestTexts(q.ExcludeWrittenBy),
			InitialShare: q.Initial.Share, InitialPrefix: q.Initial.Prefix, CurrentShare: q.Current.Share, CurrentPrefix: q.Current.Prefix, MinActivationRevision: q.MinRevision,
			TruncatedOnly: q.TruncatedOnly, IncludeSnapshots: q.IncludeSnapshots, Paced: q.Paced, AcceptDifferences: q.AcceptDifferences,
		}))
		if err != nil {
			return nil, err
		}
		if q.TruncatedOnly && !res.Msg.GetTruncatedCompared() {
			return &modulev1.CheckCompatibilityResponse{UncheckedShards: 1}, nil // a node of the previous release ignores TruncatedOnly
		}
		return res.Msg, nil
	}
	found, err := s.Compatibility.CheckCompatibility(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &modulev1.CheckCompatibilityResponse{
		Entities: uint64(found.Entities), Present: found.Present, FaultyEntities: uint64(found.FaultyEntities),
		TruncatedCompared: q.TruncatedOnly, DifferingEntities: uint64(found.DifferingEntities), UnreadableEntities: uint64(found.UnreadableEntities), SnapshotDigests: digestTexts(found.SnapshotDigests),
	}
	if !found.Complete {
		out.UncheckedShards = 1
	}
	for _, m := range found.Missing {
		out.Missing = append(out.Missing, &modulev1.CheckCompatibilityResponse_MissingEvents{EventType: m.EventType, Count: m.Count})
	}
	out.Faults, out.Differences = faultsOf(found.Faults), faultsOf(found.Differences)
	return out, nil
}

// faultsOf converts the first modules.MaxReplayFaults faults of a list to API
// messages.
func faultsOf(list []modules.ReplayFault) (out []*modulev1.CheckCompatibilityResponse_Fault) {
	for _, f := range list[:min(modules.MaxReplayFaults, len(list))] {
		out = append(out, &modulev1.CheckCompatibilityResponse_Fault{EntityId: f.EntityID, Sequence: uint64(f.At), EventType: f.EventType, Message: f.Message})
	}
	return out
}
