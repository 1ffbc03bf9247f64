package meta_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding/meta"
)

func level3(t *testing.T, commands ...[]byte) *meta.State {
	t.Helper()
	s := created(t, meta.RaiseClusterVersion(3, speaker("n1", 0, 3)))
	run(t, s, commands...)
	return s
}

// readsTruncated asserts the modules whose snapshots replace truncated
// histories of "a".
func readsTruncated(t *testing.T, s *meta.State, want ...byte) {
	t.Helper()
	b, _ := s.View().Activation("a")
	if got := named(b.TruncatedModules()); !slices.Equal(got, want) {
		t.Errorf("it loads the snapshots of %v, want %v", got, want)
	}
}

func named(list []meta.Digest) (out []byte) {
	for _, d := range list {
		out = append(out, d[0])
	}
	return out
}

// proved returns the command for a comparison of module n while writes are
// paused.
func proved(s *meta.State, n byte, of ...byte) []byte {
	b, _ := s.View().Activation("a")
	v := meta.VerificationResult{Digest: digest(n), Revision: b.Revision, Proved: true, Snapshots: len(of) > 0}
	for _, d := range of {
		v.Truncated = append(v.Truncated, digest(d))
	}
	return meta.PutVerificationResult("a", v)
}

// A module loads another module's snapshots only if a comparison under the
// revision that it replaces has proved them; a verification while commands run
// does not count.
func TestSnapshotsNeedAProof(t *testing.T) {
	s := level3(t, meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")), meta.PutModule(module(3, "a")), meta.Bind("a", digest(1), 1))
	run(t, s, meta.PutVerificationResult("a", meta.VerificationResult{Digest: digest(2), Revision: 1, All: true, Snapshots: true}), meta.Bind("a", digest(2), 2))
	if b, _ := s.View().Activation("a"); len(b.Snapshots) > 0 || !b.Proved {
		t.Errorf("%+v", b.Bound)
	}
	readsTruncated(t, s)
	run(t, s, proved(s, 3, 1, 2), meta.BindLimited("a", digest(2), 3, meta.Limits{MaxEvents: 2}), meta.Bind("a", digest(3), 4))
	readsTruncated(t, s) // proved under an earlier revision
	run(t, s, proved(s, 1, 2, 3), meta.Bind("a", digest(1), 5))
	readsTruncated(t, s, 2, 3)
	run(t, s, meta.BindLimited("a", digest(1), 6, meta.Limits{}), meta.PauseTypeWrites("a", s.View().Revision()+1))
	readsTruncated(t, s, 2, 3)
	loaded := meta.New()
	if err := loaded.Load(9, s.Dump()); err != nil || dump(loaded.View()) != dump(s.View()) {
		t.Fatal(err)
	}
	refused(t, level2(t, meta.PutModule(module(1, "a")), meta.Bind("a", digest(1), 1)), meta.ErrClusterVersion, proved(s, 1, 2))
}

// A rollback to an earlier binding does not load snapshots of modules that have
// served since, whatever was proved before.
func TestProofsDoNotCoverLaterSnapshots(t *testing.T) {
	s := level3(t, meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")), meta.PutModule(module(3, "a")), meta.Bind("a", digest(1), 1), meta.Bind("a", digest(2), 2))
	run(t, s, proved(s, 3, 1, 2), meta.Bind("a", digest(3), 3))
	readsTruncated(t, s, 1, 2)
	run(t, s, proved(s, 2, 1, 3), meta.Bind("a", digest(2), 4))
	run(t, s, meta.Rollback("a", 5)) // module 3 again, and module 2 has served since
	readsTruncated(t, s, 1)
	if b, _ := s.View().Activation("a"); b.Digest != digest(3) || slices.Contains(b.Snapshots, digest(2)) {
		t.Errorf("%+v", b.Bound)
	}
	run(t, s, meta.Bind("a", digest(2), 6))
	run(t, s, proved(s, 3, 2), meta.Rollback("a", 7))
	readsTruncated(t, s, 1, 2)
}

// A rollout needs a proof, and so does its abort.
func TestRolloutsNeedAProof(t *testing.T) {
	s := level3(t, meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")), meta.Bind("a", digest(1), 1))
	binding := func() meta.Activation { b, _ := s.View().Activation("a"); return b }
	put := func(states ...meta.RolloutState) {
		t.Helper()
		for _, state := range states {
			run(t, s, meta.PutRollouts("", 2, putRollout("a", binding().Revision, func(r *meta.Rollout) { r.Digest, r.State = digest(2), state })))
		}
	}
	newer := func(want ...byte) {
		t.Helper()
		b := binding()
		if got := named(b.RolloutTruncatedModules()); !slices.Equal(got, want) {
			t.Errorf("the newer module loads the snapshots of %v, want %v", got, want)
		}
	}
	back := func(forcedBy string) []byte {
		return meta.PutRollouts(meta.ChangeAbort, 3, meta.PutRollout{EntityType: "a", Over: binding().Revision, ForcedBy: forcedBy})
	}
	put(meta.RolloutRunning)
	newer()
	run(t, s, proved(s, 2, 1))
	put(meta.RolloutRunning)
	newer(1)
	put(meta.RolloutAborting, meta.RolloutHeld)
	newer(1)
	run(t, s, proved(s, 1, 2), back(""))
	readsTruncated(t, s, 2)
	put(meta.RolloutRunning, meta.RolloutAborting, meta.RolloutHeld)
	run(t, s, back(""))
	readsTruncated(t, s) // no comparison proved the snapshots that it has written since
	put(meta.RolloutRunning, meta.RolloutAborting, meta.RolloutHeld)
	run(t, s, proved(s, 1, 2), back("token:ci"))
	readsTruncated(t, s) // some entities were forced back without a proof

	run(t, s, proved(s, 2, 1))
	put(meta.RolloutRunning)
	run(t, s, proved(s, 2, 1), meta.PutRollouts(meta.ChangePromote, 4, meta.PutRollout{EntityType: "a", Over: binding().Revision, Promote: true}))
	readsTruncated(t, s, 1)
}

// A module that serves when the cluster version is raised continues to load
// snapshots of earlier modules. Its successor does not, and a rollback does not
// load the snapshots of the module that it reverts.
func TestOldBindingsKeepLoadingSnapshots(t *testing.T) {
	s := level2(t, meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")), meta.PutModule(module(3, "a")), meta.Bind("a", digest(1), 1), meta.Bind("a", digest(2), 2))
	readsTruncated(t, s, 1)
	run(t, s, meta.RaiseClusterVersion(3, speaker("n1", 0, 3)))
	readsTruncated(t, s, 1)
	run(t, s, meta.PauseTypeWrites("a", 2), meta.ResumeTypeWrites("a", 3))
	readsTruncated(t, s, 1)
	run(t, s, meta.Bind("a", digest(3), 3))
	readsTruncated(t, s)
	run(t, s, meta.Rollback("a", 4))
	readsTruncated(t, s, 1)
	run(t, s, meta.Rollback("a", 5))
	readsTruncated(t, s)
}

// A module that served before proofs existed may have loaded any snapshot. The
// metadata records that, also if its entities are imported. A module that has
// served only since then cannot have loaded an unproved snapshot.
func TestModulesBoundBeforeProofsAreTracked(t *testing.T) {
	s := level2(t, meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")), meta.PutModule(module(3, "a")), meta.Bind("a", digest(1), 1), meta.Bind("a", digest(2), 2))
	check := func(step string, want ...bool) {
		t.Helper()
		for i, want := range want {
			if got := s.View().LoadsByProof("a", digest(byte(i+1))); got != want {
				t.Errorf("%s: module %d loads by proof: %t", step, i+1, got)
			}
		}
	}
	check("before", false, false, false)
	run(t, s, meta.RaiseClusterVersion(3, speaker("n1", 0, 3)), meta.PauseTypeWrites("a", 2), meta.ResumeTypeWrites("a", 3))
	check("under another revision", false, false, false)
	run(t, s, proved(s, 3, 2), meta.Bind("a", digest(3), 3))
	check("another one serves", false, false, true)
	b, _ := s.View().Activation("a")
	if of := b.RestoredHistory(1); !of.Assumed || len(of.Truncated) != 1 || of.Truncated[0] != digest(1) {
		t.Errorf("what the second one loads elsewhere: %+v", of)
	}
	other := level3(t, meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")), meta.PutModule(module(3, "a")), meta.Bind("a", digest(1), 1))
	run(t, other, meta.BindRestored("a", digest(2), 2, 1, nil, b.RestoredHistory(1)), meta.BindRestored("a", digest(3), 3, 2, nil, b.ToRestored()))
	s = other
	check("imported", true, false, true)
}

// A module is kept while another module loads its snapshots, even if no
// rollback can return to it.
func TestModulesWithLoadedSnapshotsAreKept(t *testing.T) {
	s := level3(t, meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")), meta.PutModule(module(3, "a")), meta.Bind("a", digest(1), 1), meta.Bind("a", digest(2), 2))
	run(t, s, proved(s, 1, 2), meta.Rollback("a", 3)) // module 1 serves, and module 2 is not in its history
	readsTruncated(t, s, 2)
	refused(t, s, meta.ErrConflict, meta.RemoveModule(digest(2)))
	const month = int64(30 * 24 * time.Hour)
	for at := int64(1); at < 10*month; at += month {
		run(t, s, meta.CollectModules(at))
	}
	if _, known := s.View().Module(digest(2)); !known {
		t.Error("a module whose snapshots are read was collected")
	}
	run(t, s, meta.PutModule(module(3, "a")), meta.Bind("a", digest(3), 4), meta.Rollback("a", 5))
	refused(t, s, meta.ErrConflict, meta.RemoveModule(digest(2))) // module 1 still loads its snapshots
	run(t, s, meta.RemoveModule(digest(3)))
}
