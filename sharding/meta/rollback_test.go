package meta_test

import (
	"testing"

	"github.com/hostd/hostd/sharding/meta"
)

// serving returns the first digest byte of the module that serves a type, and
// its revision.
func serving(s *meta.State, entityType string) (digest byte, revision uint64) {
	b, _ := s.View().Activation(entityType)
	return b.Digest[0], b.Revision
}

// All types are rolled back or none; a retry changes nothing.
func TestRollbackOfSeveralTypesIsAtomic(t *testing.T) {
	modules := [][]byte{meta.PutModule(module(1, "a", "b")), meta.PutModule(module(2, "a", "b")), meta.Bind("a", digest(1), 1), meta.Bind("b", digest(1), 1)}
	refused(t, created(t, append(modules, meta.Bind("a", digest(2), 2))...), meta.ErrClusterVersion, meta.RollbackWith("a", 3, 3, "token:ann"))
	s := level2(t, modules...)
	run(t, s, meta.Bind("a", digest(2), 2), meta.Bind("b", digest(2), 2))
	both := meta.RollbackWith("a", 3, 3, "token:ann", meta.TakeBack{EntityType: "b", Revision: 4})
	for name, command := range map[string][]byte{
		"another revision": meta.RollbackWith("a", 3, 3, "", meta.TakeBack{EntityType: "b", Revision: 3}),
		"any revision":     meta.RollbackWith("a", 3, 3, "", meta.TakeBack{EntityType: "b"}),
		"itself":           meta.RollbackWith("a", 3, 3, "", meta.TakeBack{EntityType: "a", Revision: 3}),
		"another's":        meta.RollbackWith("a", 3, 3, "", meta.TakeBack{EntityType: "b", Revision: 4, Owner: &meta.Ownership{Was: "token:bob"}}),
	} {
		refused(t, s, meta.ErrConflict, command)
		if is, revision := serving(s, "a"); is != 2 || revision != 3 {
			t.Errorf("%s: a went back alone, to %d under %d", name, is, revision)
		}
	}
	refused(t, s, meta.ErrUnknownType, meta.RollbackWith("a", 3, 3, "", meta.TakeBack{EntityType: "c", Revision: 1}))
	refused(t, s, meta.ErrInvalid, meta.RollbackWith("a", 3, 3, "a\nb"))
	refused(t, s, meta.ErrInvalid, meta.RollbackWith("a", 3, 3, "", make([]meta.TakeBack, meta.MaxTypesPerModule)...))
	for range 2 { // the second is a retry after a lost response
		if r := run(t, s, both); r.Revision != 6 {
			t.Fatalf("the last of them serves under revision %d", r.Revision)
		}
	}
	for i, name := range []string{"b", "a"} {
		b, _ := s.View().Activation(name)
		if b.Digest != digest(1) || b.Revision != uint64(5+i) || b.TookBack != uint64(4-i) || b.ForcedBy != "token:ann" || len(b.History) > 0 {
			t.Errorf("%s: %+v", name, b)
		}
		if log := b.ChangeLog(); log[len(log)-1].Kind != meta.ChangeRollback || !log[len(log)-1].Forced {
			t.Errorf("%s: %+v", name, log)
		}
	}
	refused(t, s, meta.ErrNoPrevious, meta.RollbackWith("a", 6, 4, ""))
}
