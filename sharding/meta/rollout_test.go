package meta_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// putRollout returns a rollout of the type that replaces a revision. It covers
// 5 percent of the entities and the entities whose ids start with p, and is
// then modified by change.
func putRollout(entityType string, over uint64, change func(*meta.Rollout)) meta.PutRollout {
	part := meta.Part{Share: 500, Prefix: "p"}
	r := &meta.Rollout{Digest: digest(0xb2), State: meta.RolloutRunning, Part: part, First: part, Types: []string{entityType}}
	change(r)
	return meta.PutRollout{EntityType: entityType, Over: over, Rollout: r}
}

// canary is a state machine that may have a rollout of type "a" from module 1
// to module 2. put changes the rollout under the current revision.
type canary struct {
	*testing.T
	*meta.State
}

func newCanary(t *testing.T) canary {
	return canary{t, level2(t, meta.PutModule(module(1, "a", "b")), meta.PutModule(module(2, "a", "b")), meta.PutModule(module(3, "a")), meta.Bind("a", digest(1), 1), meta.Bind("b", digest(1), 2))}
}

func (c canary) binding() meta.Activation {
	b, _ := c.View().Activation("a")
	return b
}

func (c canary) command(kind meta.ChangeKind, change func(*meta.Rollout)) []byte {
	p := putRollout("a", c.binding().Revision, func(r *meta.Rollout) { r.Digest = digest(2) })
	if was := c.binding().Rollout; was != nil {
		next := *was
		p.Rollout = &next
	}
	change(p.Rollout)
	return meta.PutRollouts(kind, 9, p)
}

func (c canary) put(change func(*meta.Rollout)) {
	c.Helper()
	run(c.T, c.State, c.command(meta.ChangeCanary, change))
}

func (c canary) not(err error, change func(*meta.Rollout)) {
	c.Helper()
	refused(c.T, c.State, err, c.command(meta.ChangeCanary, change))
}

// end ends the rollout with a command that contains no rollout.
func (c canary) end(promote bool, forcedBy string) []byte {
	return meta.PutRollouts(meta.ChangeAbort, 9, meta.PutRollout{EntityType: "a", Over: c.binding().Revision, Promote: promote, ForcedBy: forcedBy})
}

func state(s meta.RolloutState) func(*meta.Rollout) { return func(r *meta.Rollout) { r.State = s } }

// The part that a rolled-out module serves never shrinks, except by an abort
// with a check.
func TestRolloutsOnlyGrow(t *testing.T) {
	c := newCanary(t)
	same := func(*meta.Rollout) {}
	for _, wrong := range []func(*meta.Rollout){
		func(r *meta.Rollout) { r.Part = meta.Part{}; r.First = r.Part },
		func(r *meta.Rollout) { r.Share = sharding.Buckets },
		func(r *meta.Rollout) { r.Prefix = strings.Repeat("a", 256) },
		func(r *meta.Rollout) { r.Types = nil },
		func(r *meta.Rollout) { r.Steps = []uint32{400} },
		func(r *meta.Rollout) { r.Steps = []uint32{600, 600} },
		func(r *meta.Rollout) { r.Steps = []uint32{10_001} },
		func(r *meta.Rollout) { r.Pause = -1 },
		func(r *meta.Rollout) { r.Stay = []string{"x", "x"} },
		func(r *meta.Rollout) { r.Stay = []string{"\n"} },
		func(r *meta.Rollout) { r.Note = "a\nb" },
		func(r *meta.Rollout) {
			for i := range meta.MaxRolloutStay + 1 {
				r.Stay = append(r.Stay, fmt.Sprint(i))
			}
		},
	} {
		c.not(meta.ErrInvalid, wrong)
	}
	c.not(meta.ErrConflict, func(r *meta.Rollout) { r.First.Share = 1 })
	c.not(meta.ErrConflict, func(r *meta.Rollout) { r.Digest = digest(1) })
	c.not(meta.ErrUnknownModule, func(r *meta.Rollout) { r.Digest = digest(9) })
	c.not(meta.ErrUnknownType, func(r *meta.Rollout) { r.TypeIndex = 1 })
	c.not(meta.ErrConflict, state(meta.RolloutHeld))
	refused(t, c.State, meta.ErrConflict, c.end(true, ""))
	refused(t, c.State, meta.ErrInvalid, meta.PutRollouts("", 9))
	refused(t, c.State, meta.ErrInvalid, meta.PutRollouts(meta.ChangeRollback, 9, putRollout("a", 1, same)))
	refused(t, c.State, meta.ErrConflict, meta.PutRollouts("", 9, putRollout("a", 7, same)))
	refused(t, c.State, meta.ErrUnknownType, meta.PutRollouts("", 9, putRollout("c", 1, same)))

	before := c.binding()
	c.put(same)
	b := c.binding()
	if r := b.Rollout; b.Digest != digest(1) || b.Revision != before.Revision+2 || r.Began != b.Revision || len(b.History) > 0 {
		t.Fatalf("%+v", b)
	}
	refused(t, c.State, meta.ErrConflict, meta.Bind("a", digest(3), 9))
	refused(t, c.State, meta.ErrConflict, meta.Rollback("a", 9))
	refused(t, c.State, meta.ErrConflict, meta.RemoveModule(digest(2)))
	run(t, c.State, meta.BindLimited("a", digest(1), 9, meta.Limits{MaxEvents: 3}))
	if c.binding().Rollout == nil {
		t.Error("other limits end it")
	}
	c.put(func(r *meta.Rollout) { r.Share = 2000 })
	c.not(meta.ErrConflict, func(r *meta.Rollout) { r.Share = 1999 })
	c.not(meta.ErrConflict, func(r *meta.Rollout) { r.Prefix = "" })
	c.not(meta.ErrConflict, func(r *meta.Rollout) { r.Digest = digest(3) })
	c.not(meta.ErrConflict, state(meta.RolloutAborted))
	refused(t, c.State, meta.ErrConflict, c.end(false, "token:ann"))
	if r := c.binding().Rollout; r.First.Share != 500 || r.Began != b.Revision {
		t.Errorf("it began as %+v", r)
	}
	c.put(state(meta.RolloutPaused))
	c.put(state(meta.RolloutAborting))
	refused(t, c.State, meta.ErrConflict, c.end(true, ""))
	c.put(state(meta.RolloutHeld))
	refused(t, c.State, meta.ErrConflict, c.end(true, ""))
	c.not(meta.ErrInvalid, state(meta.RolloutAborted)) // no entity stays
	c.put(func(r *meta.Rollout) { r.State, r.Part, r.Stay = meta.RolloutAborted, meta.Part{}, []string{"q"} })
	c.not(meta.ErrConflict, func(r *meta.Rollout) { r.State, r.Stay = meta.RolloutHeld, nil })
	refused(t, c.State, meta.ErrConflict, c.end(false, ""))
	c.put(state(meta.RolloutHeld))
	refused(t, c.State, meta.ErrConflict, c.end(false, "")) // one entity stays
	run(t, c.State, c.end(false, "token:ann"))
	if b := c.binding(); b.Rollout != nil || b.Digest != digest(1) {
		t.Errorf("%+v", b)
	}
}

// Promotion binds the module, and a rollback reverts it; the part that it
// served first is recorded.
func TestRolloutsArePromoted(t *testing.T) {
	c := newCanary(t)
	c.put(func(*meta.Rollout) {})
	c.put(func(r *meta.Rollout) { r.Share = 700 })
	run(t, c.State, meta.WithPrincipal(meta.PutRollouts(meta.ChangePromote, 9, meta.PutRollout{EntityType: "a", Over: c.binding().Revision, Promote: true}), "token:ann"))
	b := c.binding()
	if b.Rollout != nil || b.Digest != digest(2) || b.First == nil || *b.First != (meta.Part{Share: 500, Prefix: "p"}) || len(b.History) != 1 || b.History[0].Digest != digest(1) {
		t.Fatalf("%+v", b)
	}
	var kinds []string
	for _, change := range b.ChangeLog() {
		kinds = append(kinds, fmt.Sprint(change.Kind, change.Digest[0], " ", change.Share, change.Prefix, change.By))
	}
	if want := []string{"activate1 0", "canary2 500p", "canary2 700p", "promote2 0token:ann"}; !slices.Equal(kinds, want) {
		t.Errorf("%q, want %q", kinds, want)
	}
	run(t, c.State, meta.Rollback("a", 10))
	if b := c.binding(); b.Digest != digest(1) || b.First != nil {
		t.Errorf("%+v", b)
	}
	loaded := meta.New()
	if err := loaded.Load(9, c.Dump()); err != nil {
		t.Fatal(err)
	}
}

// Entities that stay are part of every later rollout and activation.
func TestStayingEntitiesAreKeptAcrossRollouts(t *testing.T) {
	c := newCanary(t)
	c.put(func(*meta.Rollout) {})
	c.put(state(meta.RolloutAborting))
	c.put(state(meta.RolloutHeld))
	c.put(func(r *meta.Rollout) { r.State, r.Part, r.Stay = meta.RolloutAborted, meta.Part{}, []string{"q"} })
	begin := func(r *meta.Rollout) {
		r.State, r.Part, r.First, r.Digest = meta.RolloutRunning, meta.Part{Share: 10}, meta.Part{Share: 10}, digest(3)
	}
	c.not(meta.ErrConflict, func(r *meta.Rollout) { begin(r); r.Stay = nil })
	before := c.binding().Rollout.Began
	c.put(begin)
	if r := c.binding().Rollout; r.Began == before || !r.Serves(sharding.EntityID{Type: "a", ID: "q"}) {
		t.Errorf("%+v", r)
	}
	c.put(state(meta.RolloutAborting))
	c.put(state(meta.RolloutHeld))
	c.put(func(r *meta.Rollout) { r.State, r.Part = meta.RolloutAborted, meta.Part{} })
	run(t, c.State, meta.Bind("a", digest(2), 9))
	if b := c.binding(); b.Rollout != nil || b.Digest != digest(2) {
		t.Errorf("%+v", b)
	}
}

// A command for several types is applied to all or none.
func TestRolloutsOfSeveralTypesAreAtomic(t *testing.T) {
	c := newCanary(t)
	one := putRollout("a", 1, func(r *meta.Rollout) { r.Digest, r.Types = digest(2), []string{"a", "b"} })
	two := putRollout("b", 1, func(r *meta.Rollout) { r.Digest, r.Types, r.TypeIndex = digest(2), []string{"a", "b"}, 1 })
	refused(t, c.State, meta.ErrConflict, meta.PutRollouts("", 9, one, two))
	refused(t, c.State, meta.ErrInvalid, meta.PutRollouts("", 9, one, one))
	if c.binding().Rollout != nil {
		t.Error("one of two has begun")
	}
	two.Over = 2
	run(t, c.State, meta.PutRollouts("", 9, one, two))
	if b, _ := c.View().Activation("b"); c.binding().Rollout == nil || b.Rollout == nil {
		t.Error("both were to begin")
	}
}

// An entity's bucket never changes, and entities are spread evenly.
func TestBucketsAreFixed(t *testing.T) {
	for id, want := range map[sharding.EntityID]uint32{{Type: "note", ID: "e0"}: 3743, {Type: "order", ID: "2026-1"}: 6891} {
		if got := id.Bucket(); got != want {
			t.Errorf("%v is in bucket %d, not %d", id, got, want)
		}
	}
	below := 0
	for i := range 10_000 {
		if (sharding.EntityID{Type: "note", ID: fmt.Sprint(i)}).Bucket() < 500 {
			below++
		}
	}
	if below < 400 || below > 600 {
		t.Errorf("%d of 10,000 entities are in the first 500 buckets", below)
	}
}
