package backend

import (
	"context"
	"errors"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

func shownPolicy(p meta.Policy, stored bool) rpc.Policy {
	return rpc.Policy{Replication: p.Replication, MinMembers: p.MinMembers, Rebalance: p.Rebalance, DeadAfter: p.DeadAfter, Stored: stored}
}

// policies changes the policy of the cluster.
type policies struct{ *Parts }

// SetPolicy implements rpc.Policies. What is changed at the same time elsewhere
// stays changed; a cluster of level 1 has only the whole policy to write, and of
// two changes at once the second may undo the first.
func (s policies) SetPolicy(ctx context.Context, c rpc.PolicyChange) (rpc.Policy, error) {
	p, err := s.put(ctx, c)
	for errors.Is(err, meta.ErrConflict) && ctx.Err() == nil { // another change was through
		p, err = s.put(ctx, c)
	}
	switch {
	case errors.Is(err, meta.ErrInvalid):
		return rpc.Policy{}, &rpc.InvalidSettingError{Reason: err.Error()}
	case errors.Is(err, meta.ErrClusterVersion):
		return rpc.Policy{}, &status.RefusedError{Reason: err.Error()}
	case err != nil:
		return rpc.Policy{}, err
	}
	s.Logger.Info("the policy of the cluster was set", "replication", p.Replication, "min_members", p.MinMembers, "rebalance", p.Rebalance, "dead_after", p.DeadAfter)
	if err := s.Metadata.CatchUp(ctx); err != nil { // a caller may read it here next
		return rpc.Policy{}, err
	}
	now, stored := cluster.PolicyOf(s.Metadata.View(), s.Policy)
	return shownPolicy(now, stored), nil
}

// put writes the change of the policy as it is now.
func (s policies) put(ctx context.Context, c rpc.PolicyChange) (meta.Policy, error) {
	if err := s.Metadata.CatchUp(ctx); err != nil {
		return meta.Policy{}, err
	}
	view := s.Metadata.View()
	p, was := s.Policy, meta.Policy{}
	if now, stored := view.Policy(); stored {
		p, was = now, now
	}
	level1 := view.ClusterVersion() < sharding.VersionPolicy
	if level1 {
		p.DeadAfter = 0
	}
	change(&p.Replication, c.Replication)
	change(&p.MinMembers, c.MinMembers)
	change(&p.Rebalance, c.Rebalance)
	change(&p.DeadAfter, c.DeadAfter)
	command := meta.ChangePolicy(was, p)
	if level1 {
		command = meta.PutPolicy(p)
	}
	_, err := s.Metadata.Do(ctx, command)
	return p, err
}

func change[T any](field, to *T) {
	if to != nil {
		*field = *to
	}
}
