package clusterapi

import (
	"context"
	"errors"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

func shownPolicy(p meta.Policy, stored bool) Policy {
	return Policy{Replication: p.Replication, MinMembers: p.MinMembers, Rebalance: p.Rebalance, DeadAfter: p.DeadAfter, Stored: stored}
}

// policyStore changes the policy of the cluster.
type policyStore struct{ *Parts }

// SetPolicy implements Policies. What is changed at the same time elsewhere
// stays changed; a cluster of level 1 has only the whole policy to write, and of
// two changes at once the second may undo the first.
func (s policyStore) SetPolicy(ctx context.Context, c PolicyChange) (Policy, error) {
	p, err := s.put(ctx, c)
	for errors.Is(err, meta.ErrConflict) && ctx.Err() == nil { // another change was through
		p, err = s.put(ctx, c)
	}
	switch {
	case errors.Is(err, meta.ErrInvalid):
		return Policy{}, &InvalidSettingError{Reason: err.Error()}
	case errors.Is(err, meta.ErrClusterVersion):
		return Policy{}, &status.RefusedError{Reason: err.Error()}
	case err != nil:
		return Policy{}, err
	}
	s.Logger.Info("the policy of the cluster was set", "replication", p.Replication, "min_members", p.MinMembers, "rebalance", p.Rebalance, "dead_after", p.DeadAfter)
	if err := s.Metadata.CatchUp(ctx); err != nil { // a caller may read it here next
		return Policy{}, err
	}
	now, stored := cluster.PolicyOf(s.Metadata.View(), s.Policy)
	return shownPolicy(now, stored), nil
}

// put writes the change of the policy as it is now.
func (s policyStore) put(ctx context.Context, c PolicyChange) (meta.Policy, error) {
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
