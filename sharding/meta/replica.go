package meta

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// ReplicaState is what a replica is meant to be. What it is at the moment, its
// raft group knows.
//
//	AddReplica ─▶ learner ◀─▶ voter ◀─ Place
//	                 └──▶ leaving ◀──┘
//	                         └─▶ (forgotten)
type ReplicaState string

// The states of a replica.
const (
	ReplicaVoter   ReplicaState = "voter"
	ReplicaLearner ReplicaState = "learner"
	// ReplicaLeaving: it is to leave the group, and its node keeps it until it
	// is forgotten.
	ReplicaLeaving ReplicaState = "leaving"
)

// Replica is one copy of a shard. Its id is never used again, for any shard.
type Replica struct {
	ID    sharding.ReplicaID
	Node  sharding.NodeID
	State ReplicaState
	// Lost says that the node's disk no longer holds the replica: it can never
	// vote again, and the node may hold another one beside it.
	Lost bool
}

// replicaJSON is the stored form. A voter has no state; the first version
// wrote learner for learners.
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

// UnmarshalJSON implements json.Unmarshaler; it is strict.
func (r *Replica) UnmarshalJSON(data []byte) error {
	var in replicaJSON
	if err := later(data, &in, strictJSON(data, &in)); err != nil {
		return err
	}
	*r = Replica{ID: in.ID, Node: in.Node, State: in.State, Lost: in.Lost}
	switch {
	case in.Learner && in.State == "":
		r.State = ReplicaLearner
	case in.Learner:
		return fmt.Errorf("a replica with two states")
	case in.State == "":
		r.State = ReplicaVoter
	case in.State != ReplicaLearner && in.State != ReplicaLeaving:
		return fmt.Errorf("%w: replica state %.40q", ErrUnsupported, string(in.State))
	}
	return nil
}

// Placement says where a shard's replicas are meant to live. Neither slice is
// modified.
type Placement struct {
	Shard sharding.ShardID `json:"shard"`
	// First are the voters that the shard's group began with. They never
	// change: every replica that is ever made of the shard is made with them.
	First    []sharding.ReplicaID `json:"first,omitempty"`
	Replicas []Replica            `json:"replicas"`
	// Changed is the log index of the last change of Replicas.
	Changed uint64 `json:"changed,omitempty"`
	// Recovered is the replica that the shard went on with when an operator gave
	// up the majority of its voters; 0: that never happened. From
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

// On returns the replica that the node's disk holds or is to hold, one that is
// leaving included.
func (p Placement) On(node sharding.NodeID) (Replica, bool) {
	for _, r := range p.Replicas {
		if r.Node == node && !r.Lost {
			return r, true
		}
	}
	return Replica{}, false
}

// IDs returns the ids of the replicas in the state, in the placement's order.
func (p Placement) IDs(state ReplicaState) []sharding.ReplicaID {
	var out []sharding.ReplicaID
	for _, r := range p.Replicas {
		if r.State == state {
			out = append(out, r.ID)
		}
	}
	return out
}

// count returns the number of replicas in the state.
func (p Placement) count(state ReplicaState) (n int) {
	for _, r := range p.Replicas {
		if r.State == state {
			n++
		}
	}
	return n
}

// clone returns a placement whose replicas may be changed.
func (p Placement) clone() Placement {
	p.Replicas = slices.Clone(p.Replicas)
	return p
}

// find returns the replica within a placement that is the caller's own.
func (p *Placement) find(id sharding.ReplicaID) *Replica {
	for i := range p.Replicas {
		if p.Replicas[i].ID == id {
			return &p.Replicas[i]
		}
	}
	return nil
}

// LostMajority returns the nodes of voters whose disks are lost, if no leader can
// be elected without them: raft counts them until a leader takes them out. The
// metadata does not say of a lost replica whether it voted, so each counts. That
// is wrong for a shard with one voter that has lost its learner, for as long as it
// has no leader.
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
