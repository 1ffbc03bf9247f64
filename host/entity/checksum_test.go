package entity

import (
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestLeaderProposesReplicaChecksums checks that a leader proposes a replica
// checksum at most every ten seconds, and none if the cluster version does not
// support them.
func TestLeaderProposesReplicaChecksums(t *testing.T) {
	w := quiet(t)
	w.elapse(time.Hour) // a checksum time of zero would mean that there was no checksum yet
	version := sharding.Version1
	w.core.opts.ClusterVersion = func() sharding.ClusterVersion { return version }
	proof := journal.Proof{Index: 1024, Checksum: journal.RowsDigest{7}}
	taken := func() (proofs []journal.Proof) {
		w.core.event(&coreEvent{Kind: eventProposalDone, Shard: worldShard, Term: w.term, Number: 1 << 40, Proof: &proof})
		w.core.endTurn()
		for _, f := range w.flights {
			e, err := journal.DecodeEntry(f.data)
			if err != nil || e.Kind != journal.EntryProof {
				continue
			}
			p, err := journal.DecodeProof(e.Body)
			if err != nil {
				t.Fatal(err)
			}
			proofs = append(proofs, p)
		}
		return proofs
	}
	if got := taken(); len(got) != 0 {
		t.Fatalf("at the first level: %v", got)
	}
	version = sharding.Version2
	if got := taken(); len(got) != 1 || got[0] != proof {
		t.Fatalf("%v, want %v", got, proof)
	}
	w.elapse(checksumEvery - time.Millisecond)
	if got := taken(); len(got) != 1 {
		t.Fatalf("before the rest is over: %v", got)
	}
	w.elapse(time.Millisecond)
	proof.Index += 1024
	if got := taken(); len(got) != 2 || got[1] != proof {
		t.Fatalf("after the rest: %v", got)
	}
	w.core.event(&coreEvent{Kind: eventLeaderChanged, Shard: worldShard, Term: w.term + 1})
	w.elapse(checksumEvery)
	w.flights = nil
	if got := taken(); len(got) != 0 {
		t.Fatalf("of a follower: %v", got)
	}
}
