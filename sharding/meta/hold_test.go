package meta_test

import (
	"testing"

	"github.com/hostd/hostd/sharding/meta"
)

// A binding over the revision of a paused type succeeds only during the pause,
// so nothing is written between the two commands. After the pause has ended,
// the binding is rejected.
func TestWritePauseEndsWithNextRevision(t *testing.T) {
	modules := [][]byte{meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")), meta.Bind("a", digest(1), 1)}
	refused(t, created(t, modules...), meta.ErrClusterVersion, meta.PauseTypeWrites("a", 1))
	refused(t, created(t, modules...), meta.ErrClusterVersion, meta.ResumeTypeWrites("a", 1))
	s := level2(t, modules...)
	binding := func() meta.Activation { b, _ := s.View().Activation("a"); return b }
	held := func(want uint64) {
		t.Helper()
		if b := binding(); b.PausedSince != want {
			t.Errorf("held since %d, want %d", b.PausedSince, want)
		}
	}
	refused(t, s, meta.ErrUnknownType, meta.PauseTypeWrites("b", 1))
	refused(t, s, meta.ErrUnknownType, meta.ResumeTypeWrites("b", 1))
	refused(t, s, meta.ErrConflict, meta.PauseTypeWrites("a", 2))
	run(t, s, meta.ResumeTypeWrites("a", 0), meta.ResumeTypeWrites("a", 1))
	if b := binding(); b.Revision != 1 {
		t.Fatalf("%+v: what is not held was released", b)
	}

	for range 2 { // the second time it is already paused
		if res := run(t, s, meta.PauseTypeWrites("a", 1)); res.Revision != 2 {
			t.Fatalf("%+v", res)
		}
	}
	if b := binding(); b.Revision != 1 || s.View().Revision() != 2 || len(b.ChangeLog()) != 1 {
		t.Errorf("%+v", b)
	}
	held(2)
	run(t, s, meta.Bind("a", digest(1), 9)) // the module already serves
	held(2)
	loaded := meta.New()
	if err := loaded.Load(9, s.Dump()); err != nil || dump(loaded.View()) != dump(s.View()) {
		t.Fatal(err)
	}

	// A binding that was decided during the pause arrives too late.
	run(t, s, meta.ResumeTypeWrites("a", 2))
	held(0)
	if b := binding(); b.Revision != 3 || b.Digest != digest(1) || len(b.History) > 0 || len(b.ChangeLog()) != 1 {
		t.Errorf("%+v", b)
	}
	refused(t, s, meta.ErrConflict, meta.BindOver("a", digest(2), 9, 1, nil))
	run(t, s, meta.PauseTypeWrites("a", 3))
	refused(t, s, meta.ErrConflict, meta.BindOver("a", digest(2), 9, 1, nil))
	run(t, s, meta.ResumeTypeWrites("a", 2)) // changes nothing, because that pause is already over
	held(4)
	run(t, s, meta.BindOver("a", digest(2), 9, 3, nil))
	held(0)

	run(t, s, meta.PauseTypeWrites("a", 5), meta.BindLimited("a", digest(2), 9, meta.Limits{MaxEvents: 3}))
	held(0)
	run(t, s, meta.PauseTypeWrites("a", 7), meta.Rollback("a", 9))
	held(0)
	run(t, s, meta.PutRollouts(meta.ChangeCanary, 9, putRollout("a", binding().Revision, func(r *meta.Rollout) { r.Digest = digest(2) })))
	refused(t, s, meta.ErrConflict, meta.PauseTypeWrites("a", binding().Revision))
	run(t, s, meta.RaiseClusterVersion(3, speaker("n1", 0, 3)))
	run(t, s, meta.PauseTypeWrites("a", binding().Revision))
	held(s.View().Revision())
}
