package moduleapi

import (
	"context"
	"time"

	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// Parts are the parts of a node with which it implements the ModuleService. All
// are required.
type Parts struct {
	Modules *modules.Modules
	Replays *replay.Replays
	Machine *eventlog.Machine
	Shards  poster

	late struct {
		types    struct{ Types }
		modules  struct{ Modules }
		rollouts struct{ Rollouts }
	}
}

// poster runs a request on a shard that this node leads.
type poster interface {
	Post(ctx context.Context, shard sharding.ShardID, r *request.Request) error
}

// Open sets the parts.
func (p *Parts) Open(from Parts) {
	*p = from
	p.late.types.Types, p.late.modules.Modules, p.late.rollouts.Rollouts = p.Modules.Service, p.Modules.Service, p.Modules.Rollouts
}

// Options returns the options that the parts implement. The parts may be opened
// later, before the first call that needs them.
func (p *Parts) Options() Options {
	return Options{
		Modules: &p.late.modules, Types: &p.late.types, Rollouts: &p.late.rollouts, Verifications: verifications{p}, Compatibility: localCompatibility{p, newCatalogues()},
	}
}

// Sampler returns the profiler of this node's guests.
func (p *Parts) Sampler() clusterapi.Sampler { return sampler{p} }

// sampler implements clusterapi.Sampler with the guests of this node's
// executors.
type sampler struct{ *Parts }

// Profile implements clusterapi.Sampler.
func (s sampler) Profile(ctx context.Context, entityType string, long time.Duration) ([]modules.GuestStack, error) {
	return s.Modules.Types.Profile(ctx, entityType, long)
}

// verifications implements Verifications.
type verifications struct{ *Parts }

// Verify implements Verifications.
func (v verifications) Verify(ctx context.Context, q replay.VerifyRequest, tell func(replay.Verified) error) error {
	return v.Replays.Verify(ctx, q, tell)
}
