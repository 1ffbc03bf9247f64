package meta_test

import (
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// verifying turns a rollout into a verifying rollout of module n.
func verifying(n byte, change func(*meta.Rollout)) func(*meta.Rollout) {
	return func(r *meta.Rollout) {
		r.Digest, r.State, r.Part, r.First = digest(n), meta.RolloutVerifying, meta.Part{}, meta.Part{}
		change(r)
	}
}

func unchanged(*meta.Rollout) {}

// newVerifying returns a state machine in which module 2 is being verified for
// type "a", which module 1 serves.
func newVerifying(t *testing.T, change func(*meta.Rollout)) canary {
	c := canary{t, level3(t, meta.PutModule(module(1, "a", "b")), meta.PutModule(module(2, "a", "b")), meta.PutModule(module(3, "a")), meta.Bind("a", digest(1), 1), meta.Bind("b", digest(1), 2))}
	c.verify(2, change)
	return c
}

// verify starts a verifying rollout of module n.
func (c canary) verify(n byte, change func(*meta.Rollout)) {
	c.Helper()
	run(c.T, c.State, meta.PutRollouts("", 9, putRollout("a", c.binding().Revision, verifying(n, change))))
}

// activate returns the command that binds the module, forced unless forcedBy is
// empty.
func (c canary) activate(forcedBy string) []byte {
	return meta.PutRollouts(meta.ChangeActivate, 9, meta.PutRollout{EntityType: "a", Over: c.binding().Revision, Promote: true, ForcedBy: forcedBy})
}

func (c canary) hold() { run(c.T, c.State, meta.PauseTypeWrites("a", c.binding().Revision)) }

// A verifying module serves no entity. It is bound only if it was proved under
// the current revision and writes are still paused, or if the activation
// allowed forcing it.
func TestActivationNeedsProof(t *testing.T) {
	c := newVerifying(t, unchanged)
	if b := c.binding(); b.Digest != digest(1) || !b.Rollout.IsActive() || b.Rollout.IsServing() || b.Rollout.Serves(sharding.EntityID{Type: "a", ID: "p"}) || b.Rollout.Began != b.Revision {
		t.Fatalf("%+v", b)
	}
	refused(t, c.State, meta.ErrConflict, c.activate(""))
	refused(t, c.State, meta.ErrConflict, c.activate("token:ann")) // forcing was not requested
	c.hold()
	refused(t, c.State, meta.ErrConflict, c.activate("")) // nothing is proved
	run(t, c.State, proved(c.State, 2, 1), meta.ResumeTypeWrites("a", c.binding().PausedSince))
	refused(t, c.State, meta.ErrConflict, c.activate("")) // entities have written since
	run(t, c.State, proved(c.State, 2, 1))
	refused(t, c.State, meta.ErrConflict, c.activate("")) // writes are not paused
	c.hold()
	refused(t, c.State, meta.ErrConflict, c.end(true, "")) // the kind of the change is not ChangeActivate
	run(t, c.State, meta.WithPrincipal(c.activate(""), "token:ann"))
	b := c.binding()
	if b.Digest != digest(2) || b.Rollout != nil || b.First != nil || b.PausedSince != 0 || !b.Proved || len(b.History) != 1 || b.ForcedBy != "" {
		t.Fatalf("%+v", b)
	}
	readsTruncated(t, c.State, 1)
	if log := b.ChangeLog(); len(log) != 2 || log[1].Kind != meta.ChangeActivate || log[1].By != "token:ann" || log[1].Digest != digest(2) || log[1].Revision != b.Revision {
		t.Errorf("%+v", log)
	}
	run(t, c.State, meta.Rollback("a", 10))
	if b := c.binding(); b.Digest != digest(1) {
		t.Errorf("%+v", b)
	}
}

// A module that is forced without a proof loads no snapshots of other modules,
// and the binding records the principal that forced it.
func TestForcedActivationLoadsNoSnapshots(t *testing.T) {
	c := newVerifying(t, func(r *meta.Rollout) { r.Force, r.Limits = true, &meta.Limits{MaxEvents: 3} })
	run(t, c.State, proved(c.State, 2, 1), c.activate("token:ann")) // writes are not paused
	if b := c.binding(); b.Digest != digest(2) || b.ForcedBy != "token:ann" || b.Limits.MaxEvents != 3 || len(b.Snapshots) > 0 {
		t.Errorf("%+v", b)
	}
	readsTruncated(t, c.State)
}

// While a module is being verified, only limits can change, and an abort leaves
// the serving module unchanged.
func TestVerifyingRolloutBlocksOtherChanges(t *testing.T) {
	c := newVerifying(t, unchanged)
	run(t, c.State, meta.BindLimited("a", digest(1), 9, meta.Limits{MaxEvents: 3}))
	before := c.binding()
	if !before.Rollout.IsVerifying() {
		t.Fatal("other limits end it")
	}
	refused(t, c.State, meta.ErrConflict, meta.Bind("a", digest(2), 9))
	refused(t, c.State, meta.ErrConflict, meta.Bind("a", digest(3), 9))
	refused(t, c.State, meta.ErrConflict, meta.Rollback("a", 9))
	refused(t, c.State, meta.ErrConflict, meta.RemoveModule(digest(2)))
	for _, other := range []func(*meta.Rollout){
		state(meta.RolloutRunning), state(meta.RolloutPaused), state(meta.RolloutAborting), state(meta.RolloutVerifying),
		func(r *meta.Rollout) { r.State, r.Digest = meta.RolloutRefused, digest(3) },
	} {
		c.not(meta.ErrConflict, other)
	}
	run(t, c.State, c.end(false, ""))
	b := c.binding()
	if b.Rollout != nil || b.Digest != digest(1) || b.Limits != before.Limits {
		t.Errorf("%+v", b)
	}
	if log := b.ChangeLog(); log[len(log)-1].Kind != meta.ChangeAbort {
		t.Errorf("%+v", log)
	}
	run(t, c.State, meta.RemoveModule(digest(2)))
}

// A refused rollout stays readable and blocks nothing.
func TestRefusedRolloutBlocksNothing(t *testing.T) {
	refuse := func(r *meta.Rollout) { r.State, r.Note = meta.RolloutRefused, "another state" }
	for name, next := range map[string]func(c canary){
		"activation":   func(c canary) { run(t, c.State, meta.Bind("a", digest(3), 9)) },
		"verification": func(c canary) { c.verify(2, unchanged) },
		"part": func(c canary) {
			run(t, c.State, meta.PutRollouts(meta.ChangeCanary, 9, putRollout("a", c.binding().Revision, func(r *meta.Rollout) { r.Digest = digest(2) })))
		},
		"abort":   func(c canary) { run(t, c.State, c.end(false, "")) },
		"removal": func(c canary) { run(t, c.State, meta.RemoveModule(digest(2))) },
		"rollback": func(c canary) {
			run(t, c.State, meta.Bind("a", digest(3), 9))
			c.verify(2, unchanged)
			c.put(refuse)
			run(t, c.State, meta.Rollback("a", 9))
			if b := c.binding(); b.Rollout != nil || b.Digest != digest(1) {
				t.Errorf("%+v", b)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newVerifying(t, unchanged)
			c.put(refuse)
			if r := c.binding().Rollout; r.IsActive() || r.Note == "" {
				t.Fatalf("%+v", r)
			}
			c.hold()
			run(t, c.State, proved(c.State, 2, 1))
			refused(t, c.State, meta.ErrConflict, c.activate(""))
			next(c)
			loaded := meta.New()
			if err := loaded.Load(9, c.Dump()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A verifying rollout must have an empty part and needs cluster version
// VersionVerifyingRollouts.
func TestVerifyingRolloutsAreValidated(t *testing.T) {
	c := newVerifying(t, unchanged)
	run(t, c.State, c.end(false, ""))
	for _, wrong := range []func(*meta.Rollout){
		func(r *meta.Rollout) { r.Share = 1 },
		func(r *meta.Rollout) { r.First.Prefix = "p" },
		func(r *meta.Rollout) { r.Stay = []string{"q"} },
		func(r *meta.Rollout) { r.Steps = []uint32{100} },
		func(r *meta.Rollout) { r.Pause = 1 },
		func(r *meta.Rollout) { r.Rules = "faults>0" },
		func(r *meta.Rollout) { r.Types = []string{"a", "b"} },
		func(r *meta.Rollout) { r.Limits = &meta.Limits{MaxEvents: -1} },
	} {
		refused(t, c.State, meta.ErrInvalid, meta.PutRollouts("", 9, putRollout("a", c.binding().Revision, verifying(2, wrong))))
	}
	for _, wrong := range []func(*meta.Rollout){
		func(r *meta.Rollout) { r.Digest, r.Force = digest(2), true },
		func(r *meta.Rollout) { r.Digest, r.Limits = digest(2), &meta.Limits{} },
	} {
		refused(t, c.State, meta.ErrInvalid, meta.PutRollouts("", 9, putRollout("a", c.binding().Revision, wrong)))
	}
	older := newCanary(t)
	refused(t, older.State, meta.ErrClusterVersion, meta.PutRollouts("", 9, putRollout("a", older.binding().Revision, verifying(2, unchanged))))
}
