package meta

import (
	"fmt"
	"time"
)

// Policy is what the operator decided for the whole cluster.
type Policy struct {
	// Replication is the number of voters that a shard has once there are as
	// many hosts: 1, 3, 5 or 7.
	Replication int `json:"replication"`
	// MinMembers holds the placement of shards back until that many hosts are
	// up.
	MinMembers int `json:"minMembers"`
	// Rebalance lets the coordinator move replicas and leaders for balance
	// alone. Repair and draining go on without.
	Rebalance bool `json:"rebalance"`
	// DeadAfter is how long a node must be out of reach to be taken for dead; 0 is
	// what the coordinator is configured with. From sharding.VersionPolicy on.
	DeadAfter time.Duration `json:"deadAfter,omitempty"`
}

// Bounds of Policy.DeadAfter.
const (
	MinDeadAfter = 10 * time.Second
	MaxDeadAfter = 30 * 24 * time.Hour
)

// DefaultPolicy holds where none was set.
var DefaultPolicy = Policy{Replication: 3, MinMembers: 1, Rebalance: true}

func (p Policy) check() error {
	if p.Replication < 1 || p.Replication > 7 || p.Replication%2 == 0 {
		return fmt.Errorf("%w: replication %d, 1, 3, 5 and 7 are allowed", ErrInvalid, p.Replication)
	}
	if p.MinMembers < 1 || p.MinMembers > MaxMembers {
		return fmt.Errorf("%w: min members %d, 1 to %d are allowed", ErrInvalid, p.MinMembers, MaxMembers)
	}
	if p.DeadAfter != 0 && (p.DeadAfter < MinDeadAfter || p.DeadAfter > MaxDeadAfter) {
		return fmt.Errorf("%w: dead after %v, %v to %v are allowed", ErrInvalid, p.DeadAfter, MinDeadAfter, MaxDeadAfter)
	}
	return nil
}

// Setting is a key of the cluster's replicated settings. Value is not modified.
type Setting struct {
	Key   string
	Value []byte
	// Revision counts up by one with every change of any setting; 0 for one
	// that was set before revisions were kept.
	Revision uint64
}

// storedSetting is the value of a setting since version 2; in version 1 it was
// the bytes alone.
type storedSetting struct {
	Value    []byte `json:"value,omitempty"`
	Revision uint64 `json:"revision"`
}
