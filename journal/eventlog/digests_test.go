package eventlog_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

func proofEntry(term sharding.Term, p *journal.Proof) []byte {
	return journal.AppendProofEntry(nil, term, 1, p)
}

// Replicas that apply the same entries take equal checksums at the same
// indexes. It does not matter when they flush, which version wrote their
// stores, or whether a replica started from the snapshot of another replica.
// Comparing checksums has no effect on the rows.
func TestReplicasTakeEqualChecksums(t *testing.T) {
	for seed := range uint64(2) {
		src := newSource(seed+60, 1, 30)
		rng := rand.New(rand.NewPCG(seed, 5))
		type replica struct {
			m  *eventlog.Machine
			st *store.Store
		}
		differs := func(d eventlog.Difference) { t.Errorf("%+v", d) }
		begin := func(opts eventlog.Options) replica {
			st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
			opts.Differs = differs
			return replica{openMachine(t, st, 0, opts), st}
		}
		a, b := begin(eventlog.Options{MaxEntityRows: 2, BlockBytes: 300, Seed: 1}), begin(eventlog.Options{ClusterVersion: sharding.FirstVersion, Seed: 2})
		all := []replica{a, b}
		var last *journal.Proof
		taken := 0
		for n := range uint64(2500) {
			id, c, want := src.next()
			if n == 1500 {
				flush(t, a.m, a.st)
				_, in := exported(t, a.m, 1)
				joined := begin(eventlog.Options{Seed: 3})
				joined.m.Install(1, 1, in)
				work(t, joined.m, joined.st)
				all = append(all, joined)
			}
			var first *journal.Proof
			for i, r := range all {
				v := apply1(r.m, id, c)
				checkVerdict(t, v, want)
				if i == 0 {
					first = v.Proof
				}
				if (v.Proof == nil) != (first == nil) || v.Proof != nil && *v.Proof != *first {
					t.Fatalf("seed %d index %d: replica %d has %+v, the first %+v", seed, c.Index, i, v.Proof, first)
				}
				if rng.IntN(20*(i+1)) == 0 {
					flush(t, r.m, r.st)
				}
			}
			if first != nil {
				last = first
				taken++
			}
		}
		if taken < 2 {
			t.Fatalf("%d digests in 2,500 entries", taken)
		}
		index, term := a.m.Applied(1)
		c := journal.Committed{Index: index + 1, Term: term, Data: proofEntry(term, last)}
		for i, r := range all {
			checkVerdict(t, apply1(r.m, 1, c), nil)
			if own, ok := r.m.ComparedChecksum(1, last.Index); !ok || own != last.Checksum {
				t.Errorf("replica %d says it has %v %v", i, own, ok)
			}
		}
		if _, ok := a.m.ComparedChecksum(1, last.Index+1); ok {
			t.Error("a digest that was never compared")
		}
	}
}

// A replica whose rows differ reports the difference and continues.
func TestDifferingReplicaReportsDifference(t *testing.T) {
	src := newSource(90, 1, 12)
	var log []journal.Committed
	good := openMachine(t, openStore(t, filepath.Join(t.TempDir(), "good"), smallStore), 0, eventlog.Options{})
	st := openStore(t, filepath.Join(t.TempDir(), "bad"), smallStore)
	bad := openMachine(t, st, 0, eventlog.Options{ClusterVersion: sharding.FirstVersion})
	var proof *journal.Proof
	for range 1100 {
		_, c, _ := src.next()
		log = append(log, c)
		if v := apply1(good, 1, c); v.Proof != nil {
			proof = v.Proof
		}
	}
	for i, c := range log[:1000] {
		if apply1(bad, 1, c); i%20 == 19 {
			flush(t, bad, st)
		}
	}
	flush(t, bad, st)
	// Applied records of version 1 do not count inbox rows, so opening the
	// store does not find the missing row.
	dropOne(t, st, store.ClassInbox)
	var told []eventlog.Difference
	m, err := eventlog.OpenOn(&liar{st, map[string][]byte{}}, st.MaxVersion(), eventlog.Options{Differs: func(d eventlog.Difference) { told = append(told, d) }})
	if err == nil {
		err = m.SetRecoveryTargets(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range log[1000:] {
		apply1(m, 1, c)
	}
	end := log[len(log)-1]
	c := journal.Committed{Index: end.Index + 1, Term: end.Term, Data: proofEntry(end.Term, proof)}
	checkVerdict(t, apply1(m, 1, c), nil)
	if len(told) != 1 || told[0].Shard != 1 || told[0].Own.Index != proof.Index || told[0].Own.Checksum == proof.Checksum {
		t.Fatalf("told %+v, the leader has %+v", told, proof)
	}
	if own, ok := m.ComparedChecksum(1, proof.Index); !ok || own != told[0].Own.Checksum || m.StopError(1) != nil {
		t.Fatalf("it says it has %v %v, stopped %v", own, ok, m.StopError(1))
	}
	c.Index++
	checkVerdict(t, apply1(good, 1, journal.Committed{Index: end.Index + 1, Term: end.Term, Data: proofEntry(end.Term, proof)}), nil)
	if own, _ := good.ComparedChecksum(1, proof.Index); own != proof.Checksum {
		t.Fatal("the healthy replica differs from itself")
	}
}
