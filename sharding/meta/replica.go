package meta

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// ReplicaState is the intended state of a replica. Its raft group knows the
// actual state.
//
//	AddReplica ─▶ learner ◀─▶ voter ◀─ Place
//	                 └──▶ leaving ◀──┘
//	                         └─▶ (forgotten)
type ReplicaState string

// Replica states.
const (
	ReplicaVoter   ReplicaState = "voter"
	ReplicaLearner ReplicaState = "learner"
	// ReplicaLeaving: the replica is to leave the group. Its node keeps it
	// until it is forgotten.
	ReplicaLeaving ReplicaState = "leaving"
)

// Replica is one copy of a shard. Its id is never reused, not even for other
// shards.
type Replica struct {
	ID    sharding.ReplicaID
	Node  sharding.NodeID
	State ReplicaState
	// Lost means that the node's disk no longer holds the replica. A lost replica
	// can never vote again, and the node may hold a new replica of the same shard.
	Lost bool
}

// replicaJSON is the stored form. Voters have no state; the first version wrote
// learner instead of a state for learners.
type replicaJSON struct {
	ID      sharding.ReplicaID `json:"id"`
	Node    sharding.NodeID    `json:"node"`
	State   ReplicaState       `json:"state,omitempty"`
	Learner bool               `json:"learner,omitempty"`
	Lost    bool               `json:"lost,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (r Replica) MarshalJSON() ([]byte, error) {
	out := replicaJSON{ID: r.ID, Node: r.Node, State: r.State, Lost: r.Lost}
	if r.State == ReplicaVoter {
		out.State = ""
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler. It rejects unknown members.
func (r *Replica) UnmarshalJSON(data []byte) error {
	var in replicaJSON
	if err := asUnsupported(data, &in, strictJSON(data, &in)); err != nil {
		return err
	}
	*r = Replica{ID: in.ID, Node: in.Node, State: in.State, Lost: in.Lost}
	switch {
	case in.Learner && in.State == "":
		r.State = ReplicaLearner
	case in.Learner:
		return fmt.Errorf("the replica has two conflicting states")
	case in.State == "":
		r.State = ReplicaVoter
	case in.State != ReplicaLearner && in.State != ReplicaLeaving:
		return fmt.Errorf("%w: replica state %.40q", ErrUnsupported, string(in.State))
	}
	return nil
}

// Placement is the intended set of replicas of a shard. Neither slice may be
// modified.
type Placement struct {
	Shard sharding.ShardID `json:"shard"`
	// First are the voters that the shard's group started with. They never
	// change, and every replica of the shard is created with them.
	First    []sharding.ReplicaID `json:"first,omitempty"`
	Replicas []Replica            `json:"replicas"`
	// Changed is the log index of the last change of Replicas.
	Changed uint64 `json:"changed,omitempty"`
	// Recovered is the replica with which the shard continued after an operator
	// gave up the majority of its voters; 0 if that never happened. From
	// sharding.VersionRecoverShard on.
	Recovered sharding.ReplicaID `json:"recovered,omitempty"`
}

// Replica returns the replica with the id.
func (p Placement) Replica(id sharding.ReplicaID) (Replica, bool) {
	for _, r := range p.Replicas {
		if r.ID == id {
			return r, true
		}
	}
	return Replica{}, false
}

// ReplicaOn returns the replica that the node's disk holds or should hold,
// including a leaving replica.
func (p Placement) ReplicaOn(node sharding.NodeID) (Replica, bool) {
	for _, r := range p.Replicas {
		if r.Node == node && !r.Lost {
			return r, true
		}
	}
	return Replica{}, false
}

// IDs returns the ids of the replicas in a state, in placement order.
func (p Placement) IDs(state ReplicaState) []sharding.ReplicaID {
	var out []sharding.ReplicaID
	for _, r := range p.Replicas {
		if r.State == state {
			out = append(out, r.ID)
		}
	}
	return out
}

// countState returns the number of replicas in a state.
func (p Placement) countState(state ReplicaState) (n int) {
	for _, r := range p.Replicas {
		if r.State == state {
			n++
		}
	}
	return n
}

// clone returns a copy whose replicas may be modified.
func (p Placement) clone() Placement {
	p.Replicas = slices.Clone(p.Replicas)
	return p
}

// find returns a pointer to a replica; the placement must be the caller's own
// copy.
func (p *Placement) find(id sharding.ReplicaID) *Replica {
	for i := range p.Replicas {
		if p.Replicas[i].ID == id {
			return &p.Replicas[i]
		}
	}
	return nil
}

// LostMajority returns the nodes of voters whose disks are lost, if no leader
// can be elected without them. Raft counts lost voters until a leader removes
// them. The metadata does not record whether a lost replica was a voter, so
// LostMajority counts each lost replica as a voter. The result is wrong for a
// shard with a single voter that has lost a learner, as long as the shard has
// no leader.
func (p Placement) LostMajority() (lost []sharding.NodeID) {
	voters := 0
	for _, r := range p.Replicas {
		switch {
		case r.State == ReplicaLearner:
		case r.Lost:
			lost = append(lost, r.Node)
		default:
			voters++
		}
	}
	if p.Recovered != 0 || voters > (voters+len(lost))/2 {
		return nil
	}
	return lost
}
