package rpc

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/rpc/admission"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/host/rpc/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Verifications replay the histories of shards that this node leads.
type Verifications interface {
	// Verify tells what came of each entity, and ends with the first error of tell.
	Verify(ctx context.Context, v Verification, tell func(Verified) error) error
}

// Verification says what to replay with which module.
type Verification struct {
	Shard      sharding.ShardID
	EntityType string
	Digest     journal.Digest
	// Sample entities are drawn by Draw, a random number below its argument; 0
	// is all of them.
	Sample int
	Draw   func(below int) int
}

// Verified is what came of one entity.
type Verified struct {
	EntityID string
	Events   uint64
	// Cut: it was not replayed, because its first events were cut. Uncompared:
	// the module that serves the type could not replay it.
	Cut, Uncompared bool
	// Difference is empty where the module agrees with the one that serves the
	// type; At is the event at which it shows. Fault says that the module failed.
	Difference string
	At         journal.Sequence
	Fault      bool
}

const (
	// defaultSample is the scope of a caller that names none.
	defaultSample = 100
	// maxDifferences ends a verification.
	maxDifferences = 100
	// verifyEvery is between two messages that tell how far it is.
	verifyEvery = time.Second
)

// errManyDifferences ends a verification.
var errManyDifferences = errors.New("enough differences")

// verifyService answers Verify.
type verifyService struct {
	verifications Verifications
	proxy         *leaderproxy.Proxy
	guard         *admission.Streams
	entities      Entities
}

// Verify replays histories, shard after shard, each where it is led.
func (s *moduleService) Verify(ctx context.Context, r *connect.Request[modulev1.VerifyRequest], stream *connect.ServerStream[modulev1.VerifyResponse]) error {
	if s.verify.verifications == nil {
		return s.UnimplementedModuleServiceHandler.Verify(ctx, r, stream)
	}
	digest, err := parseDigest(r.Msg.GetDigest())
	if err == nil {
		_, err = s.types.Lookup(ctx, r.Msg.GetEntityType())
	}
	if err == nil && uint32(r.Msg.GetShardId()) > s.verify.entities.Shards() {
		err = status.Argument("there is no such shard")
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() { // the server's end is that of the call
		select {
		case <-s.verify.guard.Stopping():
			cancel(admission.ErrStopping)
		case <-ended:
		}
	}()
	run := verification{verifyService: &s.verify, request: r.Msg, digest: digest, guard: guard, stream: stream, known: map[string]bool{}}
	if err := run.shards(ctx); err != nil && !errors.Is(err, errManyDifferences) {
		return status.Public(s.log, errors.Join(context.Cause(ctx), err))
	}
	return run.send()
}

// verification is one call of Verify.
type verification struct {
	*verifyService
	request *modulev1.VerifyRequest
	digest  journal.Digest
	guard   *admission.Stream
	stream  *connect.ServerStream[modulev1.VerifyResponse]

	done   replayed        // of the shards that are through
	now    replayed        // of the shard under way
	known  map[string]bool // entities that were reported
	unsent []*modulev1.VerifyResponse_Difference
	sent   time.Time
}

// replayed counts.
type replayed struct{ entities, events, cut, uncompared uint64 }

// shards verifies one shard after the other; of a sample each has about as
// many, in random order, so that those without entities leave theirs to others.
func (v *verification) shards(ctx context.Context) error {
	first, last := 1, int(v.entities.Shards())
	if only := int(v.request.GetShardId()); only != 0 {
		first, last = only, only
	}
	left := int(v.request.GetSample())
	if v.request.GetScope() == nil {
		left = defaultSample
	}
	order := make([]sharding.ShardID, last-first+1)
	for i, at := range rand.Perm(len(order)) {
		order[i] = sharding.ShardID(first + at)
	}
	for i, shard := range order {
		sample := 0
		if !v.request.GetAll() {
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
		v.done.entities += v.now.entities
		v.done.events += v.now.events
		v.done.cut += v.now.cut
		v.done.uncompared += v.now.uncompared
		v.now = replayed{}
	}
	return nil
}

// shard verifies one where it is led, and again where the leader is lost.
func (v *verification) shard(ctx context.Context, shard sharding.ShardID, sample int) error {
	var pause leaderproxy.Backoff
	for {
		changed := v.proxy.Changed()
		v.now = replayed{}
		err := v.attempt(ctx, shard, sample)
		if err == nil || leaderproxy.FromPeer(ctx) || !leaderproxy.Retry(err) && !leaderproxy.Ended(err) || !v.proxy.Quorum(shard) ||
			pause.Wait(ctx, changed) != nil {
			return leaderproxy.Proxied(err)
		}
	}
}

func (v *verification) attempt(ctx context.Context, shard sharding.ShardID, sample int) error {
	leader, err := v.proxy.LeaderModules(ctx, shard)
	if err != nil {
		return err
	}
	if leader == nil {
		return v.verifications.Verify(ctx, Verification{Shard: shard, EntityType: v.request.GetEntityType(), Digest: v.digest, Sample: sample, Draw: rand.IntN}, v.told)
	}
	m := &modulev1.VerifyRequest{Digest: v.request.GetDigest(), EntityType: v.request.GetEntityType(), ShardId: uint32(shard), Scope: &modulev1.VerifyRequest_All{All: true}}
	if sample > 0 {
		m.Scope = &modulev1.VerifyRequest_Sample{Sample: uint32(sample)}
	}
	in, err := leader.Verify(ctx, connect.NewRequest(m))
	if err != nil {
		return err
	}
	defer in.Close()
	for in.Receive() {
		v.now = replayed{in.Msg().GetEntities(), in.Msg().GetEvents(), in.Msg().GetCutEntities(), in.Msg().GetUncomparedEntities()}
		for _, d := range in.Msg().GetDifferences() {
			if err := v.found(d); err != nil {
				return err
			}
		}
		if err := v.progress(); err != nil {
			return err
		}
	}
	return in.Err()
}

// told is what came of one entity of this node.
func (v *verification) told(e Verified) error {
	if e.Cut {
		v.now.cut++
		return v.progress()
	}
	v.now.entities++
	v.now.events += e.Events
	if e.Uncompared {
		v.now.uncompared++
	}
	if e.Difference != "" {
		d := &modulev1.VerifyResponse_Difference{EntityId: e.EntityID, Sequence: uint64(e.At), Description: e.Difference, Fault: e.Fault}
		if err := v.found(d); err != nil {
			return err
		}
	}
	return v.progress()
}

// found keeps a difference until the next message, once for each entity.
func (v *verification) found(d *modulev1.VerifyResponse_Difference) error {
	if v.known[d.GetEntityId()] {
		return nil
	}
	v.known[d.GetEntityId()] = true
	v.unsent = append(v.unsent, d)
	if len(v.known) >= maxDifferences {
		return errManyDifferences
	}
	return nil
}

// progress sends how far it is, now and then.
func (v *verification) progress() error {
	if time.Since(v.sent) < verifyEvery {
		return nil
	}
	return v.send()
}

func (v *verification) send() error {
	v.sent = time.Now()
	out := &modulev1.VerifyResponse{
		Entities: v.done.entities + v.now.entities, Events: v.done.events + v.now.events, CutEntities: v.done.cut + v.now.cut,
		UncomparedEntities: v.done.uncompared + v.now.uncompared, Differences: v.unsent,
	}
	v.unsent = nil
	v.guard.BeginWrite()
	defer v.guard.EndWrite()
	return v.stream.Send(out)
}
