package meta

import (
	"fmt"
	"time"
)

// Policy is the operator's configuration of the whole cluster.
type Policy struct {
	// Replication is the number of voters per shard, if the cluster has as many
	// storage nodes: 1, 3, 5 or 7.
	Replication int `json:"replication"`
	// MinMembers delays the placement of shards until that many storage nodes
	// are up.
	MinMembers int `json:"minMembers"`
	// Rebalance allows the coordinator to move replicas and leaders only to
	// balance load. Repair and draining work regardless.
	Rebalance bool `json:"rebalance"`
	// DeadAfter is the time for which a node must be unreachable before it is
	// considered dead; if 0, the coordinator's configuration applies. From
	// sharding.VersionPolicy on.
	DeadAfter time.Duration `json:"deadAfter,omitempty"`
}

// Bounds of Policy.DeadAfter.
const (
	minDeadAfter = 10 * time.Second
	MaxDeadAfter = 30 * 24 * time.Hour
)

// DefaultPolicy applies if none is set.
var DefaultPolicy = Policy{Replication: 3, MinMembers: 1, Rebalance: true}

func (p Policy) check() error {
	if p.Replication < 1 || p.Replication > 7 || p.Replication%2 == 0 {
		return fmt.Errorf("%w: replication must be 1, 3, 5 or 7, got %d", ErrInvalid, p.Replication)
	}
	if p.MinMembers < 1 || p.MinMembers > MaxMembers {
		return fmt.Errorf("%w: min-members must be between 1 and %[3]d, got %[2]d", ErrInvalid, p.MinMembers, MaxMembers)
	}
	if p.DeadAfter != 0 && (p.DeadAfter < minDeadAfter || p.DeadAfter > MaxDeadAfter) {
		return fmt.Errorf("%w: dead-after must be between %[3]v and %[4]v, got %[2]v", ErrInvalid, p.DeadAfter, minDeadAfter, MaxDeadAfter)
	}
	return nil
}

// Setting is one of the cluster's replicated settings. Value must not be
// modified.
type Setting struct {
	Key   string
	Value []byte
	// Revision increases by one with every change of any setting; 0 if the
	// setting was set before revisions were recorded.
	Revision uint64
}

// storedSetting is the stored form of a setting since version 2. In version 1
// it was the plain value.
type storedSetting struct {
	Value    []byte `json:"value,omitempty"`
	Revision uint64 `json:"revision"`
}
