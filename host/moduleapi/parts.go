package moduleapi

import (
	"context"
	"time"

	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/replay"
)

// Parts are the parts of a node with which it implements the ModuleService. All
// are required.
type Parts struct {
	Modules *modules.Modules
	Replays *replay.Replays

	late struct {
		types    struct{ Types }
		modules  struct{ Modules }
		rollouts struct{ rollouts }
	}
}

// Open sets the parts.
func (p *Parts) Open(from Parts) {
	*p = from
	p.late.types.Types, p.late.modules.Modules, p.late.rollouts.rollouts = p.Modules.Service, p.Modules.Service, p.Modules.Rollouts
}

// Options returns the options that the parts implement. The parts may be opened
// later, before the first call that needs them.
func (p *Parts) Options() Options {
	return Options{
		Modules: &p.late.modules, Types: &p.late.types, Rollouts: &p.late.rollouts, Verifications: replays{p}, Compatibility: replays{p},
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

// replays implements Verifications and Compatibility.
type replays struct{ *Parts }

// Verify implements Verifications.
func (r replays) Verify(ctx context.Context, q replay.VerifyRequest, tell func(replay.Verified) error) error {
	return r.Replays.Verify(ctx, q, tell)
}

// CheckCompatibility implements Compatibility.
func (r replays) CheckCompatibility(ctx context.Context, q modules.CompatibilityQuery) (modules.Compatibility, error) {
	return r.Replays.CheckCompatibility(ctx, q)
}
