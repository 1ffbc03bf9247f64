package meta_test

import (
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// If two bindings replace the same revision, only one of them succeeds.
// Retrying the successful binding changes nothing.
func TestBindOverRejectsConcurrentBinding(t *testing.T) {
	s := created(t)
	one, two, three := meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")), meta.PutModule(module(3, "a"))
	run(t, s, one, two, three)
	refused(t, s, meta.ErrClusterVersion, meta.BindOver("a", digest(1), 1, 0, nil))
	run(t, s, meta.RaiseClusterVersion(2, speaker("n1", 0, 2)))
	refused(t, s, meta.ErrConflict, meta.BindOver("a", digest(1), 1, 1, nil))
	for range 2 { // the second is a retry after a lost response
		if r := run(t, s, meta.BindOver("a", digest(1), 1, 0, nil)); r.Revision != 1 {
			t.Fatalf("bound first under revision %d", r.Revision)
		}
	}
	refused(t, s, meta.ErrConflict, meta.BindOver("a", digest(2), 2, 0, nil))
	if r := run(t, s, meta.BindOver("a", digest(2), 2, 1, nil)); r.Revision != 2 {
		t.Errorf("bound under revision %d", r.Revision)
	}
	refused(t, s, meta.ErrConflict, meta.BindOver("a", digest(3), 3, 1, nil))
	if b, _ := s.View().Activation("a"); b.Digest != digest(2) || s.View().ClusterVersion() != sharding.Version2 {
		t.Errorf("%s serves", b.Digest)
	}
	// The principal that forced the binding is recorded, and is no longer recorded
	// after a different module is bound.
	run(t, s, meta.BindForced("a", digest(1), 3, 2, nil, "token:ann"), meta.BindForced("a", digest(1), 3, 3, &meta.Limits{MaxEvents: 2}, ""))
	if b, _ := s.View().Activation("a"); b.ForcedBy != "token:ann" {
		t.Errorf("it was forced by %q", b.ForcedBy)
	}
	run(t, s, meta.BindOver("a", digest(2), 3, 4, nil))
	if b, _ := s.View().Activation("a"); b.ForcedBy != "" || b.History[len(b.History)-1].ForcedBy != "token:ann" {
		t.Errorf("%+v", b)
	}
	refused(t, s, meta.ErrInvalid, meta.BindForced("a", digest(1), 3, 5, nil, "a\nb"))
	// New limits are a change too, so a binding decided before them is
	// rejected.
	run(t, s, meta.BindOver("a", digest(2), 4, 5, &meta.Limits{MaxEvents: 3}))
	refused(t, s, meta.ErrConflict, meta.BindOver("a", digest(3), 5, 5, nil))
}
