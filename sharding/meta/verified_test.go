package meta_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding/meta"
)

// The latest results per type are stored for the current revision, up to a
// limit, and survive a restore.
func TestVerificationResultsAreStored(t *testing.T) {
	s := created(t)
	for n := range byte(meta.MaxVerificationResults + 3) {
		run(t, s, meta.PutModule(module(n+1, "a")))
	}
	run(t, s, meta.PutModule(module(99, "b")), meta.Bind("a", digest(1), 1))
	verified := func(n byte, revision uint64) []byte {
		return meta.PutVerificationResult("a", meta.VerificationResult{Digest: digest(n), Revision: revision, Entities: 7, All: true, By: "token:ann"})
	}
	refused(t, s, meta.ErrClusterVersion, verified(2, 1))
	run(t, s, meta.RaiseClusterVersion(2, speaker("n1", 0, 2)))
	refused(t, s, meta.ErrConflict, verified(2, 2))
	refused(t, s, meta.ErrUnknownType, meta.PutVerificationResult("b", meta.VerificationResult{Digest: digest(99)}))
	refused(t, s, meta.ErrUnknownType, meta.PutVerificationResult("a", meta.VerificationResult{Digest: digest(99), Revision: 1}))
	refused(t, s, meta.ErrUnknownModule, verified(100, 1))
	refused(t, s, meta.ErrInvalid, meta.PutVerificationResult("a", meta.VerificationResult{Digest: digest(2), Revision: 1, By: strings.Repeat("x", meta.MaxForcedByBytes+1)}))
	run(t, s, verified(2, 1), verified(3, 1), meta.PutVerificationResult("a", meta.VerificationResult{Digest: digest(2), Revision: 1, Entities: 8, Faults: 1}))
	check := func(s *meta.State) {
		t.Helper()
		two, _ := s.View().VerificationResult("a", digest(2))
		three, ok := s.View().VerificationResult("a", digest(3))
		if two.Entities != 8 || two.Faults != 1 || two.All || !ok || three.Entities != 7 || !three.All || three.By != "token:ann" {
			t.Errorf("kept are %+v and %+v", two, three)
		}
		if v, ok := s.View().VerificationResult("a", digest(1)); ok {
			t.Errorf("of a module that was not verified: %+v", v)
		}
	}
	check(s)
	restored := meta.New()
	if err := restored.Load(9, s.Dump()); err != nil {
		t.Fatal(err)
	}
	check(restored)
	for n := range byte(meta.MaxVerificationResults - 1) {
		run(t, s, verified(n+4, 1))
	}
	if _, ok := s.View().VerificationResult("a", digest(3)); ok {
		t.Error("more are kept than there is room for")
	}
	if _, ok := s.View().VerificationResult("a", digest(2)); !ok {
		t.Error("the one that was verified again is gone before those of after")
	}
	run(t, s, meta.Bind("a", digest(2), 2))
	refused(t, s, meta.ErrConflict, verified(4, 1))
}

// A module loads the snapshots of its predecessor, and the snapshots that the
// predecessor loads, only if a verification under the current revision allows
// it.
func TestVerifiedModuleLoadsPreviousSnapshots(t *testing.T) {
	s := created(t)
	const most = meta.MaxSnapshotModules + 3
	for n := range byte(most) {
		run(t, s, meta.PutModule(module(n+1, "a")))
	}
	run(t, s, meta.RaiseClusterVersion(2, speaker("n1", 0, 2)), meta.Bind("a", digest(1), 1))
	loads := func(want ...byte) {
		t.Helper()
		b, _ := s.View().Activation("a")
		got := make([]byte, 0, len(b.Snapshots))
		for _, d := range b.Snapshots {
			got = append(got, d[0])
		}
		if !slices.Equal(got, want) {
			t.Errorf("it loads the snapshots of %v, want %v", got, want)
		}
	}
	verified := func(n byte, revision uint64, snapshots bool) []byte {
		return meta.PutVerificationResult("a", meta.VerificationResult{Digest: digest(n), Revision: revision, All: true, Snapshots: snapshots})
	}
	run(t, s, verified(2, 1, true), meta.Bind("a", digest(2), 2))
	loads(1)
	run(t, s, verified(3, 2, true), meta.BindLimited("a", digest(2), 3, meta.Limits{MaxEvents: 2}))
	loads(1)
	run(t, s, meta.Bind("a", digest(3), 4)) // verified under an earlier revision
	loads()
	run(t, s, verified(1, 4, false), meta.Bind("a", digest(1), 5))
	loads()
	run(t, s, verified(2, 5, true), meta.Bind("a", digest(2), 6), verified(3, 6, true), meta.Bind("a", digest(3), 7), verified(1, 7, true), meta.Bind("a", digest(1), 8))
	loads(2, 3) // module 3's own snapshots are not listed
	run(t, s, meta.RollbackOf("a", 8, 9))
	loads(1, 2)
	for n := range byte(most - 3) {
		b, _ := s.View().Activation("a")
		run(t, s, verified(n+4, b.Revision, true), meta.Bind("a", digest(n+4), 10))
	}
	loads(3, 4, 5, 6, 7, 8, 9, 10)
}
