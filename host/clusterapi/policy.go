package clusterapi

import (
	"context"
	"log/slog"
	"math"
	"time"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/status"
)

// Policies changes the policy of the cluster, from whichever node is asked.
type Policies interface {
	// SetPolicy changes what is not nil and returns the policy once that is
	// durable. It fails with an *InvalidSettingError where a value is out of
	// bounds, and with a *RefusedError where the cluster's level has no such
	// value.
	SetPolicy(ctx context.Context, c PolicyChange) (Policy, error)
}

// Policy is what the operators decided for the whole cluster.
type Policy struct {
	Replication int
	MinMembers  int
	Rebalance   bool
	DeadAfter   time.Duration
	Stored      bool // in the metadata; else it is of this node's flags
}

// PolicyChange has what is to change.
type PolicyChange struct {
	Replication, MinMembers *int
	Rebalance               *bool
	DeadAfter               *time.Duration
}

// policyService answers SetPolicy.
type policyService struct {
	policies Policies
	log      *slog.Logger
}

// SetPolicy changes the policy of the cluster.
func (s *policyService) SetPolicy(ctx context.Context, req *connect.Request[clusterv1.SetPolicyRequest]) (*connect.Response[clusterv1.SetPolicyResponse], error) {
	m := req.Msg
	c := PolicyChange{Rebalance: m.Rebalance}
	number := func(v *uint32) *int {
		if v == nil {
			return nil
		}
		n := int(min(*v, math.MaxInt32))
		return &n
	}
	c.Replication, c.MinMembers = number(m.Replication), number(m.MinMembers)
	if m.DeadAfterMillis != nil {
		after := time.Duration(min(*m.DeadAfterMillis, uint64(math.MaxInt64/time.Millisecond))) * time.Millisecond
		if after == 0 {
			return nil, status.Public(s.log, &InvalidSettingError{Reason: "dead after 0s: a node that is out of reach is not taken for dead at once"})
		}
		c.DeadAfter = &after
	}
	if c == (PolicyChange{}) {
		return nil, status.Public(s.log, &InvalidSettingError{Reason: "the request changes nothing: give replication, min-members, rebalance or dead-after"})
	}
	p, err := s.policies.SetPolicy(ctx, c)
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(&clusterv1.SetPolicyResponse{Policy: policyMessage(p)}), nil
}

func policyMessage(p Policy) *clusterv1.Policy {
	return &clusterv1.Policy{
		Replication: uint32(p.Replication), MinMembers: uint32(p.MinMembers), Rebalance: p.Rebalance,
		DeadAfterMillis: uint64(p.DeadAfter.Milliseconds()), Stored: p.Stored,
	}
}
