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

// Policies changes the policy of the cluster, on any node.
type Policies interface {
	// SetPolicy changes the fields that are not nil and returns the policy when
	// the change is durable. It fails with an *invalidSettingError if a value is
	// out of range, and with a *status.RefusedError if the cluster version does
	// not support the value.
	SetPolicy(ctx context.Context, c PolicyChange) (Policy, error)
}

// Policy is the policy that operators have set for the whole cluster.
type Policy struct {
	Replication int
	MinMembers  int
	Rebalance   bool
	DeadAfter   time.Duration
	Stored      bool // stored in the metadata; otherwise it comes from this node's flags
}

// PolicyChange has the fields to change; nil fields keep their values.
type PolicyChange struct {
	Replication, MinMembers *int
	Rebalance               *bool
	DeadAfter               *time.Duration
}

// policyService implements SetPolicy.
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
	if m.DeadAfter != nil {
		after := m.GetDeadAfter().AsDuration().Truncate(time.Millisecond) // the metadata has milliseconds
		if after <= 0 {
			return nil, status.Public(s.log, &invalidSettingError{Reason: "dead-after must be at least 1ms, because unreachable nodes would be declared dead at once"})
		}
		c.DeadAfter = &after
	}
	if c == (PolicyChange{}) {
		return nil, status.Public(s.log, &invalidSettingError{Reason: "the request changes nothing: set replication, min-members, rebalance or dead-after"})
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
		DeadAfter: unlessZero(p.DeadAfter), Stored: p.Stored,
	}
}
