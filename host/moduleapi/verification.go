package moduleapi

import (
	"context"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/jsonvalue"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// verifications replays the histories of shards that this node leads.
type verifications interface {
	// Verify calls tell with the result of each entity. It stops at the first
	// error of tell and returns it.
	Verify(ctx context.Context, r replay.VerifyRequest, tell func(replay.Verified) error) error
}

const (
	// defaultSample is the sample size if the caller sets no scope.
	defaultSample = 100
	// maxDifferences limits the differences that are reported.
	maxDifferences = 100
	// verifyEvery is the interval between two progress messages.
	verifyEvery = time.Second
)

// verification replays the histories of a type with a module, one shard after
// the other, each on the node that leads it, and reports its progress. It writes
// nothing. Its exported fields must be set before do. It must be used by one
// goroutine.
type verification struct {
	Verifications verifications
	Proxy         *leaderproxy.Proxy
	Shards        uint32 // number of data shards of the cluster
	Request       *modulev1.VerifyModuleRequest
	Digest        journal.Digest
	// Revision is the revision of the activation with which all shards are
	// compared.
	Revision uint64
	// Tell sends a progress message.
	Tell func(*modulev1.VerifyModuleResponse) error

	done   replayed        // counts of the finished shards
	now    replayed        // counts of the current shard
	known  map[string]bool // entities whose difference was reported
	unsent []*modulev1.VerifyModuleResponse_Difference
	sent   time.Time
}

// replayed holds the counts of a verification.
type replayed struct{ entities, events, cut, uncompared, differing, faulty uint64 }

func (r *replayed) add(more replayed) {
	r.entities += more.entities
	r.events += more.events
	r.cut += more.cut
	r.uncompared += more.uncompared
	r.differing += more.differing
	r.faulty += more.faulty
}

// do verifies one shard after the other, until ctx ends. A sample is divided
// about equally between the shards, which are taken in random order; if a shard
// has too few entities, the rest of its share goes to the next shards.
func (v *verification) do(ctx context.Context) error {
	first, last := 1, int(v.Shards)
	if only := int(v.Request.GetShardId()); only != 0 {
		first, last = only, only
	}
	left := int(v.Request.GetSample())
	if v.Request.GetScope() == nil {
		left = defaultSample
	}
	order := make([]sharding.ShardID, last-first+1)
	for i, at := range rand.Perm(len(order)) {
		order[i] = sharding.ShardID(first + at)
	}
	for i, shard := range order {
		sample := 0
		if !v.Request.GetAll() {
			if left <= 0 {
				return nil
			}
			rest := len(order) - i
			sample = (left + rest - 1) / rest
		}
		if err := v.shard(ctx, shard, sample); err != nil {
			return err
		}
		left -= int(v.now.entities)
		v.done.add(v.now)
		v.now = replayed{}
	}
	return nil
}

// shard verifies one shard on the node that leads it, and retries when the
// leader is lost.
func (v *verification) shard(ctx context.Context, shard sharding.ShardID, sample int) error {
	var search leaderproxy.Search
	for {
		changed := v.Proxy.Changed()
		v.now = replayed{}
		err := v.attempt(ctx, shard, sample)
		if v.now != (replayed{}) {
			search.Reset()
		}
		if err == nil || !leaderproxy.Retry(err) && !leaderproxy.IsCanceled(err) || !search.Again(ctx, v.Proxy, shard, changed, err) {
			return leaderproxy.CallerError(err)
		}
	}
}

func (v *verification) attempt(ctx context.Context, shard sharding.ShardID, sample int) error {
	leader, err := v.Proxy.LeaderModules(ctx, shard)
	if err != nil {
		return err
	}
	if leader == nil {
		return v.Verifications.Verify(ctx, replay.VerifyRequest{
			Shard: shard, EntityType: v.Request.GetEntityType(), Digest: v.Digest, Sample: sample, Draw: rand.IntN,
			Revision: v.Revision, Quiet: func() bool { return len(v.known) >= maxDifferences },
		}, v.countEntity)
	}
	m := &modulev1.VerifyModuleRequest{Digest: v.Request.GetDigest(), EntityType: v.Request.GetEntityType(), ShardId: uint32(shard), Revision: v.Revision, Scope: &modulev1.VerifyModuleRequest_All{All: true}}
	if sample > 0 {
		m.Scope = &modulev1.VerifyModuleRequest_Sample{Sample: uint32(sample)}
	}
	in, err := leader.VerifyModule(ctx, connect.NewRequest(m))
	if err != nil {
		return err
	}
	defer in.Close()
	for in.Receive() {
		m := in.Msg()
		v.now = replayed{m.GetEntities(), m.GetEvents(), m.GetTruncatedEntities(), m.GetUncomparedEntities(), m.GetDifferingEntities(), m.GetFaultyEntities()}
		for _, d := range m.GetDifferences() {
			v.addDifference(d)
		}
		if err := v.progress(); err != nil {
			return err
		}
	}
	return in.Err()
}

// countEntity counts the result of one entity of this node.
func (v *verification) countEntity(e replay.Verified) error {
	if e.Truncated {
		v.now.cut++
		return v.progress()
	}
	v.now.entities++
	v.now.events += e.Events
	if e.Uncompared {
		v.now.uncompared++
	}
	switch {
	case e.Fault:
		v.now.faulty++
	case e.Difference != "":
		v.now.differing++
	}
	if e.Difference != "" {
		v.addDifference(differenceOf(e))
	}
	return v.progress()
}

func differenceOf(e replay.Verified) *modulev1.VerifyModuleResponse_Difference {
	d := &modulev1.VerifyModuleResponse_Difference{
		EntityId: e.EntityID, Sequence: uint64(e.At), Description: e.Difference, Fault: e.Fault, EventType: e.EventType, PatchTruncated: e.PatchTruncated,
	}
	for _, o := range e.Patch {
		step := &modulev1.VerifyModuleResponse_PatchOperation{Op: string(o.Op), Path: o.Path}
		if o.Op != replay.PatchRemove {
			step.Value = jsonvalue.Of(o.Is)
		}
		d.Patch = append(d.Patch, step)
	}
	return d
}

// addDifference stores a difference for the next message, once for each entity, up to
// maxDifferences.
func (v *verification) addDifference(d *modulev1.VerifyModuleResponse_Difference) {
	if v.known == nil {
		v.known = map[string]bool{}
	}
	if len(v.known) < maxDifferences && !v.known[d.GetEntityId()] {
		v.known[d.GetEntityId()] = true
		v.unsent = append(v.unsent, d)
	}
}

// progress sends the progress, at most once per verifyEvery.
func (v *verification) progress() error {
	if time.Since(v.sent) < verifyEvery {
		return nil
	}
	return v.tell(v.report())
}

// report returns the progress, with the differences that were not reported yet.
func (v *verification) report() *modulev1.VerifyModuleResponse {
	all := v.done
	all.add(v.now)
	out := &modulev1.VerifyModuleResponse{
		Entities: all.entities, Events: all.events, TruncatedEntities: all.cut, UncomparedEntities: all.uncompared, Differences: v.unsent,
		DifferingEntities: all.differing, FaultyEntities: all.faulty,
	}
	v.unsent = nil
	return out
}

func (v *verification) tell(out *modulev1.VerifyModuleResponse) error {
	v.sent = time.Now()
	return v.Tell(out)
}
