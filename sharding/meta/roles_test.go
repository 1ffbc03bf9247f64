package meta_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
)

// level2 returns a single-node cluster that can store roles.
func level2(t *testing.T, commands ...[]byte) *meta.State {
	t.Helper()
	s := created(t, meta.RaiseClusterVersion(2, speaker("n1", 0, 2)))
	run(t, s, commands...)
	return s
}

func clerk(types ...string) access.Role {
	return access.Role{Name: "clerk", Rules: []access.Rule{{Effect: access.Allow, Verbs: []string{access.Invoke}, Types: types}}}
}

func bound(subject string, roles ...string) []byte {
	return meta.PutRoleBinding(access.Binding{Subject: subject, Roles: roles})
}

func TestRolesNeedVersion2(t *testing.T) {
	s := created(t)
	for _, command := range [][]byte{meta.PutRole(clerk("a")), meta.DeleteRole("clerk"), bound("token:a", access.RoleAdmin), meta.DeleteRoleBinding("token:a")} {
		refused(t, s, meta.ErrClusterVersion, command)
	}
}

func TestRolesAreStored(t *testing.T) {
	s := level2(t)
	if r := run(t, s, meta.PutRole(clerk("a"))); r.Revision != 1 || !r.Changed {
		t.Errorf("put: %+v", r)
	}
	if r := run(t, s, meta.PutRole(clerk("a"))); r.Revision != 1 || r.Changed {
		t.Errorf("put again: %+v", r)
	}
	limited := clerk("b")
	limited.Quotas = access.Quotas{CommandsPerSecond: 100, Streams: 2, CompileSeconds: access.Unlimited}
	if r := run(t, s, meta.PutRole(limited)); r.Revision != 2 || !r.Changed {
		t.Errorf("put another one of the name: %+v", r)
	}
	if r := run(t, s, bound("token:ci", "viewer", "clerk")); r.Revision != 3 {
		t.Errorf("bound: %+v", r)
	}
	if r := run(t, s, bound("token:ci", "clerk", "viewer")); r.Revision != 3 || r.Changed {
		t.Errorf("bound to the same in another order: %+v", r)
	}
	limited.Quotas.Streams = 3
	if r := run(t, s, meta.PutRole(limited)); r.Revision != 4 || !r.Changed {
		t.Errorf("put with another quota: %+v", r)
	}
	v := s.View()
	if got := fmt.Sprint(v.Roles(), v.RoleBindings(), v.RoleRevision()); got != "[{clerk [{allow [invoke] [b] [] []}] {100 0 0 3 0 0 -1} 4}] [{token:ci [clerk viewer] 3}] 4" {
		t.Errorf("kept: %s", got)
	}
	refused(t, s, meta.ErrConflict, meta.DeleteRole("clerk")) // a binding uses the role
	refused(t, s, meta.ErrInvalid, meta.DeleteRole("viewer"))
	if r := run(t, s, meta.DeleteRole("other")); r.Changed {
		t.Errorf("removed what is not there: %+v", r)
	}
	loaded := meta.New()
	if err := loaded.Load(9, s.Dump()); err != nil || dump(loaded.View()) != dump(v) {
		t.Errorf("loaded: %v", err)
	}
	run(t, s, meta.DeleteRoleBinding("token:ci"), meta.DeleteRoleBinding("token:ci"), meta.DeleteRole("clerk"))
	if v := s.View(); len(v.Roles())+len(v.RoleBindings()) != 0 || v.RoleRevision() != 6 {
		t.Errorf("removed: %v, %v, revision %d", v.Roles(), v.RoleBindings(), v.RoleRevision())
	}
}

func TestLastAdminCannotBeRemoved(t *testing.T) {
	s := level2(t, bound("token:root", access.RoleAdmin, "viewer"))
	refused(t, s, meta.ErrConflict, meta.DeleteRoleBinding("token:root"))
	refused(t, s, meta.ErrConflict, bound("token:root", "viewer"))
	refused(t, s, meta.ErrInvalid, bound("anonymous", access.RoleAdmin))
	run(t, s, bound("group:ops", access.RoleAdmin), bound("token:root", "viewer"), meta.DeleteRoleBinding("token:root"))
	refused(t, s, meta.ErrConflict, meta.DeleteRoleBinding("group:ops"))
}

func TestInvalidRolesAreRejected(t *testing.T) {
	s := level2(t, meta.PutRole(clerk("a")))
	for _, command := range [][]byte{
		meta.PutRole(access.Role{Name: access.RoleAdmin, Rules: clerk().Rules}), meta.PutRole(access.Role{Name: "clerk"}),
		bound("ci", "viewer"), bound("token:ci"),
	} {
		refused(t, s, meta.ErrInvalid, command)
	}
	refused(t, s, meta.ErrConflict, bound("token:ci", "nobody"))
	long := clerk()
	for i := range access.MaxRules {
		rule := access.Rule{Effect: access.Allow, Verbs: []string{access.Any}}
		for k := range access.MaxRuleEntries {
			rule.IDPrefixes = append(rule.IDPrefixes, fmt.Sprintf("%d/%d/%s", i, k, strings.Repeat("x", 60)))
		}
		long.Rules = append(long.Rules[:i], rule)
	}
	for i := 0; ; i++ {
		long.Name = fmt.Sprintf("long-%d", i)
		_, result, _ := s.Apply(s.View().Index()+1, meta.PutRole(long))
		if _, err := meta.DecodeResult(result); err != nil {
			if !errors.Is(err, meta.ErrInvalid) || i != access.MaxBytes/long.Size() {
				t.Errorf("role %d of %d bytes: %v", i, long.Size(), err)
			}
			break
		}
	}
	// A smaller role fits.
	long.Name, long.Rules = "long-0", long.Rules[:1]
	run(t, s, meta.PutRole(long))
}

func TestRolesAreCounted(t *testing.T) {
	s := level2(t)
	for i := range access.MaxRoles {
		r := clerk("a")
		r.Name = fmt.Sprint("r", i)
		run(t, s, meta.PutRole(r))
	}
	refused(t, s, meta.ErrInvalid, meta.PutRole(clerk("a")))
	changed := clerk("b")
	changed.Name = "r0"
	run(t, s, meta.PutRole(changed))
	for i := range access.MaxBindings {
		run(t, s, bound(fmt.Sprint("token:", i), "viewer"))
	}
	refused(t, s, meta.ErrInvalid, bound("token:x", "viewer"))
}

func TestRolesOfLaterReleaseAreUnsupported(t *testing.T) {
	for key, value := range map[string]string{
		"role/clerk":           `{"name":"clerk","rules":[{"effect":"allow","verbs":["fly"]}]}`,
		"role/warden":          `{"name":"warden","rules":[{"effect":"allow","verbs":["invoke"],"hours":"9-17"}]}`,
		"rolebinding/person:a": `{"subject":"person:a","roles":["viewer"]}`,
	} {
		if err := loads(key, []byte(`{"v":1,"value":`+value+`}`)); !errors.Is(err, meta.ErrUnsupported) {
			t.Errorf("%s: %v", key, err)
		}
	}
	for key, value := range map[string]string{
		"role/clerk":           `{"name":"other","rules":[{"effect":"allow","verbs":["invoke"]}]}`,
		"rolebinding/token:ci": `{"subject":"token:other","roles":["viewer"]}`,
	} {
		if err := loads(key, []byte(`{"v":1,"value":`+value+`}`)); !errors.Is(err, meta.ErrCorrupt) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// Two state machines, one of which is sometimes reloaded from its dump, agree
// on random commands. Bound roles always exist, and once there is an admin,
// there is always at least one admin.
func TestRandomRolesKeepTheInvariants(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		a, b := level2(t), level2(t)
		name := func() string { return fmt.Sprint("r", rng.IntN(4)) }
		subject := func() string { return fmt.Sprint("token:", rng.IntN(4)) }
		admin := false
		for range 300 {
			var body []byte
			switch rng.IntN(5) {
			case 0:
				r := clerk(fmt.Sprint("t", rng.IntN(3)))
				r.Name = name()
				body = meta.PutRole(r)
			case 1:
				body = meta.DeleteRole(name())
			case 2:
				body = bound(subject(), name(), "viewer")
			case 3:
				body = bound(subject(), access.RoleAdmin)
			default:
				body = meta.DeleteRoleBinding(subject())
			}
			index := a.View().Index() + 1
			aw, ar, _ := a.Apply(index, body)
			bw, br, _ := b.Apply(index, body)
			if !reflect.DeepEqual(aw, bw) || !bytes.Equal(ar, br) || dump(a.View()) != dump(b.View()) {
				t.Fatalf("seed %d: replicas differ on %s", seed, body)
			}
			if rng.IntN(20) == 0 {
				loaded := meta.New()
				if err := loaded.Load(index, b.Dump()); err != nil {
					t.Fatal(err)
				}
				b = loaded
			}
			known := map[string]bool{"viewer": true, access.RoleAdmin: true}
			for _, r := range a.View().Roles() {
				known[r.Name] = true
			}
			still := false
			for _, binding := range a.View().RoleBindings() {
				still = still || binding.BindsAdmin()
				for _, r := range binding.Roles {
					if !known[r] {
						t.Fatalf("seed %d: %s has the role %s, which is gone", seed, binding.Subject, r)
					}
				}
			}
			if admin && !still {
				t.Fatalf("seed %d: nobody is admin any more after %s", seed, body)
			}
			admin = still
		}
		if !admin {
			t.Fatalf("seed %d: nobody was ever admin", seed)
		}
	}
}

// A role that names ids by the caller's name alone is restricted to callers of
// one kind, because others with the same name would get the same ids.
func TestNameVariableIsLimitedToOneKind(t *testing.T) {
	own := func(prefix string) access.Role {
		return access.Role{Name: "own", Rules: []access.Rule{{Effect: access.Allow, Verbs: []string{access.Query}, IDPrefixes: []string{prefix}}}}
	}
	before := level2(t)
	refused(t, before, meta.ErrClusterVersion, meta.PutRole(own("${principal}/")))
	run(t, before, meta.PutRole(own("${principal.name}/")), bound("token:alice", "own"), bound("jwt:alice", "own"))

	s := level2(t, meta.RaiseClusterVersion(3, speaker("n1", 0, 3)))
	run(t, s, meta.PutRole(own("${principal.name}/")), bound("token:alice", "own"), bound("token:bob", "own"))
	refused(t, s, meta.ErrConflict, bound("jwt:alice", "own"))
	refused(t, s, meta.ErrConflict, bound("group:team", "own"))
	run(t, s, meta.PutRole(own("${principal}/")), bound("jwt:alice", "own"), bound("group:team", "own"))
	refused(t, s, meta.ErrConflict, meta.PutRole(own("${principal.name}/")))
	run(t, s, meta.DeleteRoleBinding("token:alice"), meta.DeleteRoleBinding("token:bob"), meta.PutRole(own("${principal.name}/")))
}
