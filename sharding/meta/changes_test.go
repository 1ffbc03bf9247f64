package meta_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding/meta"
)

// logged returns the change log of type "a" as text, oldest first.
func logged(s *meta.State) string {
	b, _ := s.View().Activation("a")
	var out []string
	for _, c := range b.ChangeLog() {
		text := fmt.Sprintf("%d %s %d@%d by %s", c.Revision, c.Kind, c.Digest[0], c.At, c.By)
		if c.Forced {
			text += " forced"
		}
		if c.TookBack > 0 {
			text += fmt.Sprint(" of ", c.TookBack)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// Changes that led to a binding are logged with their authors, up to a limit.
// Commands that change nothing are not logged. The log starts with the changes
// that can be reconstructed from version 1.
func TestBindingChangesAreLogged(t *testing.T) {
	s := created(t)
	run(t, s, meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")), meta.Bind("a", digest(1), 1))
	refused(t, s, meta.ErrClusterVersion, meta.WithPrincipal(meta.Bind("a", digest(2), 2), "token:ann"))
	refused(t, s, meta.ErrClusterVersion, meta.WithPrincipal(meta.Rollback("a", 2), "token:ann"))
	run(t, s, meta.Bind("a", digest(2), 2))
	if b, _ := s.View().Activation("a"); len(b.Changes) > 0 {
		t.Errorf("level 1 keeps %v", b.Changes)
	}
	const before = "1 activate 1@1 by , 2 activate 2@2 by "
	if got := logged(s); got != before {
		t.Errorf("of level 1: %s", got)
	}
	run(t, s, meta.RaiseClusterVersion(2, speaker("n1", 0, 2)))
	if got := logged(s); got != before {
		t.Errorf("of level 1, at level 2: %s", got)
	}
	run(t, s,
		meta.WithPrincipal(meta.BindForced("a", digest(1), 3, 2, nil, "token:ann"), "token:ann"),
		meta.WithPrincipal(meta.Bind("a", digest(1), 4), "token:bob"), // already serving
		meta.WithPrincipal(meta.BindLimited("a", digest(1), 5, meta.Limits{MaxEvents: 2}), "token:bob"),
		meta.WithPrincipal(meta.RollbackOf("a", 4, 6), "token:eve"))
	refused(t, s, meta.ErrInvalid, meta.WithPrincipal(meta.Bind("a", digest(1), 7), "a\nb"))
	refused(t, s, meta.ErrInvalid, meta.WithPrincipal(meta.Rollback("a", 7), strings.Repeat("a", meta.MaxForcedByBytes+1)))
	want := before + ", 3 activate 1@3 by token:ann forced, 4 limits 1@5 by token:bob, 5 rollback 2@6 by token:eve of 4"
	if got := logged(s); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	loaded := meta.New()
	if err := loaded.Load(9, s.Dump()); err != nil || logged(loaded) != want {
		t.Errorf("loaded: %v, %s", err, logged(loaded))
	}
	for i := range meta.MaxActivationChanges {
		run(t, s, meta.Bind("a", digest(byte(1+i%2)), int64(10+i)))
	}
	b, _ := s.View().Activation("a")
	revisions := func(c meta.ActivationChange) uint64 { return c.Revision }
	if log := b.ChangeLog(); len(log) != meta.MaxActivationChanges || revisions(log[len(log)-1]) != b.Revision || !slices.IsSortedFunc(log, func(x, y meta.ActivationChange) int { return int(x.Revision) - int(y.Revision) }) {
		t.Errorf("%d changes are kept up to %d: %s", len(log), b.Revision, logged(s))
	}
}
