package moduleapi

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Fits runs the compatibility check: it compares a module with the stored
// entities of a shard that this node leads.
type Fits interface {
	// Fit lasts little longer than twice q.Budget.
	Fit(ctx context.Context, q modules.FitQuery) (modules.Fit, error)
}

const (
	// fitSample is how many entities are replayed if the caller sets no number.
	fitSample = 20
	// fitShardSample is the minimum sample of each shard until fitSample
	// entities were replayed, because the entities may be in few shards.
	fitShardSample = 5
	// fitBudget is the time for one shard if the caller sets none.
	fitBudget = 2 * time.Second
	// fitWait limits the check of all shards together.
	fitWait = 10 * time.Second
	// fitPacedWait limits one paced check of a shard, and fitPause is the pause
	// between two of them.
	fitPacedWait = 2 * time.Minute
	fitPause     = 100 * time.Millisecond
)

// Fit compares a module with the stored entities of a type.
func (s *handler) Fit(ctx context.Context, r *connect.Request[modulev1.FitRequest]) (*connect.Response[modulev1.FitResponse], error) {
	if s.Fits == nil {
		return s.UnimplementedModuleServiceHandler.Fit(ctx, r)
	}
	digest, err := parseDigest(r.Msg.GetDigest())
	if err == nil {
		_, err = s.Types.Lookup(ctx, r.Msg.GetEntityType())
	}
	peer := leaderproxy.FromPeer(ctx)
	switch only := r.Msg.GetShardId(); {
	case err != nil:
	case only > s.Entities.Shards():
		err = status.Argument("there is no such shard")
	case peer && only == 0:
		err = status.Argument("another node asks for one shard")
	case !peer: // the node that forwards the call has already authorized the caller
		if err = s.owners.mayRun(ctx, r.Msg.GetEntityType(), digest); err == nil {
			_, err = s.Modules.Get(ctx, digest)
		}
	}
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	out, err := s.fit(ctx, digest, r.Msg)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(out), nil
}

// fit checks one shard, or all shards in random order. It logs and counts the
// shards that it cannot check.
func (s *handler) fit(ctx context.Context, digest journal.Digest, r *modulev1.FitRequest) (*modulev1.FitResponse, error) {
	before, err := parseDigests(r.GetWrittenNotBy())
	if err != nil {
		return nil, err
	}
	q := modules.FitQuery{
		WrittenNotBy: before, First: meta.Part{Share: r.GetFirstShare(), Prefix: r.GetFirstPrefix()}, Within: meta.Part{Share: r.GetWithinShare(), Prefix: r.GetWithinPrefix()}, Fence: r.GetFence(),
		Shard: sharding.ShardID(r.GetShardId()), EntityType: r.GetEntityType(), Digest: digest, Sample: int(cmp.Or(r.GetSample(), fitSample)),
		Draw: rand.IntN, Budget: cmp.Or(time.Duration(r.GetShardMillis())*time.Millisecond, fitBudget), PresenceOnly: r.GetPresenceOnly(),
		Truncated: r.GetTruncated(), Snapshots: r.GetSnapshots(), Paced: r.GetPaced(), Accept: r.GetAcceptDifferences(),
	}
	if q.Shard != 0 {
		return s.fitShard(ctx, q)
	}
	if len(before) > 0 || q.Truncated {
		return s.checkTouched(ctx, q)
	}
	end, left, most := time.Now().Add(fitWait), q.Sample, q.Budget
	all := newFitSum()
	shards := rand.Perm(int(s.Entities.Shards()))
	for i, at := range shards {
		rest := len(shards) - i
		if q.Budget = min(most, time.Until(end)); q.Budget <= 0 {
			all.unread(rest)
			break
		}
		if q.Shard, q.Sample = sharding.ShardID(at+1), 0; left > 0 {
			q.Sample = max(fitShardSample, (left+rest-1)/rest)
		}
		one, err := s.fitShard(ctx, q)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if coded := status.Coded(nil); errors.As(err, &coded) && coded.Code() == connect.CodePermissionDenied {
			return nil, err // the module's signature does not allow it to run, whatever the shard
		}
		if err != nil {
			s.Log.Warn("a module is not compared with what is stored in a shard", "entity_type", q.EntityType, "shard_id", q.Shard, "error", err)
			all.unread(1)
			continue
		}
		all.add(one)
		left = max(0, left-int(one.GetEntities()))
	}
	return all.answer(), nil
}

// fitAll repeats the paced check of one shard until the whole shard was compared
// or an incompatibility is found.
func (s *handler) fitAll(ctx context.Context, q modules.FitQuery) (*modulev1.FitResponse, error) {
	for {
		out, err := s.fitShard(ctx, q)
		if err != nil || out.GetUnreadShards() == 0 || misfits(q, out) || !out.GetTruncatedCompared() {
			return out, err
		}
		select {
		case <-time.After(fitPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// misfits reports whether the result rules out that the module replaces the
// active one.
func misfits(q modules.FitQuery, found *modulev1.FitResponse) bool {
	return found.GetFailing() > 0 || found.GetDiffering() > 0 && !q.Accept
}

// fitShard checks one shard on the node that leads it, and retries when the
// leadership moves.
func (s *handler) fitShard(ctx context.Context, q modules.FitQuery) (*modulev1.FitResponse, error) {
	wait := fitWait + 2*q.Budget
	if q.Paced { // a paced check waits for its turn and never stops in the middle of an entity
		wait = fitPacedWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var search leaderproxy.Search
	for {
		changed := s.Proxy.Changed()
		out, err := s.fitOnce(ctx, q)
		if connect.CodeOf(err) == connect.CodeUnimplemented { // a node of the previous release does not have the call
			return nil, leaderproxy.CallerError(err)
		}
		if err == nil || !leaderproxy.Retry(err) || !search.Again(ctx, s.Proxy, q.Shard, changed, err) {
			return out, leaderproxy.CallerError(err)
		}
	}
}

func (s *handler) fitOnce(ctx context.Context, q modules.FitQuery) (*modulev1.FitResponse, error) {
	leader, err := s.Proxy.LeaderModules(ctx, q.Shard)
	if err != nil {
		return nil, err
	}
	if leader != nil {
		res, err := leader.Fit(ctx, connect.NewRequest(&modulev1.FitRequest{
			Digest: q.Digest.String(), EntityType: q.EntityType, Sample: uint32(max(1, q.Sample)), ShardId: uint32(q.Shard),
			ShardMillis: uint32(max(1, q.Budget.Milliseconds())), PresenceOnly: q.PresenceOnly, WrittenNotBy: digestTexts(q.WrittenNotBy),
			FirstShare: q.First.Share, FirstPrefix: q.First.Prefix, WithinShare: q.Within.Share, WithinPrefix: q.Within.Prefix, Fence: q.Fence,
			Truncated: q.Truncated, Snapshots: q.Snapshots, Paced: q.Paced, AcceptDifferences: q.Accept,
		}))
		if err != nil {
			return nil, err
		}
		if q.Truncated && !res.Msg.GetTruncatedCompared() {
			return &modulev1.FitResponse{UnreadShards: 1}, nil // a node of the previous release ignores Truncated
		}
		return res.Msg, nil
	}
	found, err := s.Fits.Fit(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &modulev1.FitResponse{
		Entities: uint64(found.Entities), Present: found.Present, Failing: uint64(found.Failing),
		TruncatedCompared: q.Truncated, Differing: uint64(found.Differing), Unreadable: uint64(found.Unreadable), SnapshotsOf: digestTexts(found.SnapshotsOf),
	}
	if !found.Complete {
		out.UnreadShards = 1
	}
	for _, m := range found.Missing {
		out.Missing = append(out.Missing, &modulev1.FitResponse_MissingEvents{EventType: m.EventType, Count: m.Count})
	}
	out.Faults, out.Differences = faultsOf(found.Faults), faultsOf(found.Differences)
	return out, nil
}

// faultsOf converts the first modules.MaxFitFaults faults of a list to API
// messages.
func faultsOf(list []modules.FitFault) (out []*modulev1.FitResponse_Fault) {
	for _, f := range list[:min(modules.MaxFitFaults, len(list))] {
		out = append(out, &modulev1.FitResponse_Fault{EntityId: f.EntityID, Sequence: uint64(f.At), EventType: f.EventType, Message: f.Message})
	}
	return out
}
