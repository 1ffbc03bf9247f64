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

// policyStore implements Policies.
type policyStore struct{ *Parts }

// SetPolicy implements Policies. Concurrent changes of different fields all
// take effect. At cluster version 1 only the whole policy can be written, so
// the second of two concurrent changes may revert the first.
func (s policyStore) SetPolicy(ctx context.Context, c PolicyChange) (Policy, error) {
	p, err := s.put(ctx, c)
	for errors.Is(err, meta.ErrConflict) && ctx.Err() == nil { // a conflict means that a concurrent change was applied first
		p, err = s.put(ctx, c)
	}
	switch {
	case errors.Is(err, meta.ErrInvalid):
		return Policy{}, &invalidSettingError{Reason: err.Error()}
	case errors.Is(err, meta.ErrClusterVersion):
		return Policy{}, &status.RefusedError{Reason: err.Error()}
	case err != nil:
		return Policy{}, err
	}
	s.Logger.Info("the cluster's policy was set", "replication", p.Replication, "min_members", p.MinMembers, "rebalance", p.Rebalance, "dead_after", p.DeadAfter)
	if err := s.Metadata.CatchUp(ctx); err != nil { // the caller may read the policy on this node next
		return Policy{}, err
	}
	now, stored := cluster.PolicyOf(s.Metadata.View(), s.Policy)
	return shownPolicy(now, stored), nil
}

// put applies the change to the current policy and writes it.
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
