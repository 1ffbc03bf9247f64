package raftgroup

import (
	"testing"

	"github.com/hostd/hostd/sharding"
)

// TestNodeAwaitingAttestationDoesNotVote: a node that awaits attestation neither votes nor
// campaigns, whatever it receives. It does both after its release.
func TestNodeAwaitingAttestationDoesNotVote(t *testing.T) {
	const shards = 4
	d := newDrill(t, 3, shards)
	d.until("leaders", 60, func() bool { return d.led(shards) })
	for s := 1; s <= shards; s++ {
		d.lead(s, s%3)
		d.write(s, "before", 0, 1, 2)
	}
	d.nodes[2].up = false
	d.nodes[0].probation = true
	d.nodes[0].restart()
	d.nodes[1].restart()
	for range 100 {
		d.beat()
	}
	for s := 1; s <= shards; s++ {
		if at := d.leader(s); at != nil {
			t.Fatalf("node %d leads shard %d with the vote of one that is on probation", at.i, s)
		}
	}
	d.nodes[0].driver.Core().Release()
	d.until("leaders after the release", 60, func() bool { return d.led(shards) })
	for s := 1; s <= shards; s++ {
		d.write(s, "after", 0, 1)
	}
}

// TestSoleVoterAwaitingAttestationDoesNotLead: the sole voter of a group does not lead
// before its release either.
func TestSoleVoterAwaitingAttestationDoesNotLead(t *testing.T) {
	d := newEmptyDrill(t, 1)
	n := d.nodes[0]
	n.create(GroupConfig{Shard: 1, Replica: 10, Voters: []sharding.ReplicaID{10}})
	d.until("leader", 10, func() bool { return d.led(1) })
	d.write(1, "before", 0)
	n.probation = true
	n.restart()
	n.create(GroupConfig{Shard: 2, Replica: 20, Voters: []sharding.ReplicaID{20}})
	for range 50 {
		d.beat()
	}
	if d.leader(1) != nil || d.leader(2) != nil {
		t.Fatal("a node that is on probation leads")
	}
	n.driver.Core().Release()
	d.until("leaders after the release", 10, func() bool { return d.led(2) })
	d.write(1, "after", 0)
}
