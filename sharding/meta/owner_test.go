package meta_test

import (
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
)

func ownerOf(t *testing.T, s *meta.State, entityType string) string {
	t.Helper()
	b, bound := s.View().Activation(entityType)
	if !bound {
		t.Fatalf("%s is not bound", entityType)
	}
	return b.Owner
}

func TestOwnersNeedVersion2(t *testing.T) {
	s := created(t, meta.PutModule(module(1, "a")), meta.Bind("a", digest(1), 1), meta.PutModule(module(2, "a")), meta.Bind("a", digest(2), 2))
	takes := meta.Ownership{Is: "token:ci"}
	for _, command := range [][]byte{meta.WithOwner(meta.Bind("a", digest(1), 2), takes), meta.WithOwner(meta.Rollback("a", 3), takes), meta.PutTypeOwner("a", takes)} {
		refused(t, s, meta.ErrClusterVersion, command)
	}
	if ownerOf(t, s, "a") != "" {
		t.Error("it has an owner")
	}
}

// A command that was authorized for one owner fails if the owner has changed
// since, and the owner stays with the type.
func TestOwnerChangesAreConditional(t *testing.T) {
	by := func(was, is string) meta.Ownership { return meta.Ownership{Was: was, Is: is} }
	s := level2(t, meta.PutModule(module(1, "a", "b")), meta.PutModule(module(2, "a")), meta.Bind("a", digest(1), 1))
	if r := run(t, s, meta.WithOwner(meta.Bind("a", digest(1), 2), by("", "token:ann"))); !r.Changed || r.Revision != 1 || ownerOf(t, s, "a") != "token:ann" {
		t.Errorf("an activation of what serves takes a type without an owner: %+v, %q", r, ownerOf(t, s, "a"))
	}
	if r := run(t, s, meta.WithOwner(meta.Bind("a", digest(1), 2), by("token:ann", "token:ann"))); r.Changed {
		t.Errorf("once more: %+v", r)
	}
	before := dump(s.View())
	for _, command := range [][]byte{
		meta.WithOwner(meta.Bind("a", digest(2), 3), by("", "token:bo")), meta.WithOwner(meta.Bind("a", digest(2), 3), by("token:bo", "token:bo")),
		meta.WithOwner(meta.BindLimited("a", digest(1), 3, meta.Limits{MaxEvents: 1}), by("", "token:bo")), meta.PutTypeOwner("a", by("", "token:bo")),
	} {
		refused(t, s, meta.ErrConflict, command)
	}
	refused(t, s, meta.ErrUnknownType, meta.PutTypeOwner("b", by("", "token:bo")))
	for _, none := range []string{"anonymous", "ann", "token:", "token:" + strings.Repeat("x", access.MaxSubjectBytes)} {
		refused(t, s, meta.ErrInvalid, meta.PutTypeOwner("a", by("token:ann", none)))
	}
	if dump(s.View()) != before {
		t.Error("what was refused changed something")
	}
	run(t, s, meta.WithOwner(meta.Bind("b", digest(1), 3), by("", "token:bo")), meta.Bind("a", digest(2), 4)) // without authorization
	refused(t, s, meta.ErrConflict, meta.WithOwner(meta.RollbackOf("a", 3, 5), by("token:bo", "token:bo")))
	run(t, s, meta.WithOwner(meta.RollbackOf("a", 3, 5), by("token:ann", "token:ann")))
	if ownerOf(t, s, "a") != "token:ann" || ownerOf(t, s, "b") != "token:bo" {
		t.Errorf("the owners are %q and %q", ownerOf(t, s, "a"), ownerOf(t, s, "b"))
	}
	if r := run(t, s, meta.PutTypeOwner("a", by("token:ann", "group:team-a"))); !r.Changed || s.View().Revision() != 4 {
		t.Errorf("another owner: %+v, revision %d", r, s.View().Revision())
	}
	if r := run(t, s, meta.PutTypeOwner("a", by("group:team-a", "group:team-a"))); r.Changed {
		t.Errorf("the same owner: %+v", r)
	}
	loaded := meta.New()
	if err := loaded.Load(9, s.Dump()); err != nil || dump(loaded.View()) != dump(s.View()) || ownerOf(t, loaded, "a") != "group:team-a" {
		t.Errorf("loaded: %v", err)
	}
	run(t, s, meta.PutTypeOwner("a", by("group:team-a", "")))
	if ownerOf(t, s, "a") != "" {
		t.Error("it has an owner yet")
	}
}

// Types with a different owner are foreign if role checks are on, from version
// 3 on.
func TestTypesOfOtherOwnersAreForeign(t *testing.T) {
	s := created(t, meta.RaiseClusterVersion(2, speaker("n1", 0, 3)),
		meta.PutModule(module(1, "a", "b", "c", "free")), meta.Bind("a", digest(1), 1), meta.Bind("b", digest(1), 2), meta.Bind("c", digest(1), 3), meta.Bind("free", digest(1), 4),
		meta.PutTypeOwner("a", meta.Ownership{Is: "token:ann"}), meta.PutTypeOwner("b", meta.Ownership{Is: "token:bo"}), meta.PutTypeOwner("c", meta.Ownership{Is: "token:ann"}))
	look := func(when string, want map[[2]string]bool) {
		t.Helper()
		for _, to := range []string{"a", "b", "c", "free"} {
			for _, from := range []string{"a", "b", "c", "free", "nowhere"} {
				if got := s.View().IsForeign(to, from); got != want[[2]string{to, from}] {
					t.Errorf("%s, a message to %s of %s: foreign %v", when, to, from, got)
				}
			}
		}
	}
	foreign := map[[2]string]bool{
		{"a", "b"}: true, {"a", "free"}: true, {"a", "nowhere"}: true, {"b", "a"}: true, {"b", "c"}: true, {"b", "free"}: true, {"b", "nowhere"}: true,
		{"c", "b"}: true, {"c", "free"}: true, {"c", "nowhere"}: true,
	}
	look("nobody is admin", nil)
	run(t, s, meta.PutRoleBinding(access.Binding{Subject: "token:root", Roles: []string{access.RoleAdmin}}))
	look("at level 2", nil)
	run(t, s, meta.RaiseClusterVersion(3, speaker("n1", 0, 3)))
	look("at level 3", foreign)
}
