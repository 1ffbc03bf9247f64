package meta_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
)

// token returns a token whose secret is its name, created at a time in seconds.
func token(name string, made, expires int64) access.Token {
	return access.Token{Name: name, Hash: access.HashToken(name), Expires: expires, CreatedAt: made * int64(time.Second)}
}

func TestTokensNeedVersion2(t *testing.T) {
	s := created(t)
	for _, command := range [][]byte{meta.PutToken(token("a", 1, 0), "viewer"), meta.PutFirstToken(token("a", 1, 0), access.RoleAdmin), meta.DeleteToken("a"),
		meta.PutFirstRoleBinding(access.Binding{Subject: "group:ops", Roles: []string{access.RoleAdmin}})} {
		refused(t, s, meta.ErrClusterVersion, command)
	}
}

func TestTokensAreStoredWithRoles(t *testing.T) {
	s := level2(t)
	if r := run(t, s, meta.PutToken(token("ci", 1, 9), "viewer", "invoker")); r.Revision != 1 || !r.Changed {
		t.Errorf("put: %+v", r)
	}
	// A client that got no response repeats the command later.
	if r := run(t, s, meta.PutToken(token("ci", 2, 9), "invoker", "viewer")); r.Revision != 1 || r.Changed {
		t.Errorf("put again: %+v", r)
	}
	v := s.View()
	if got := fmt.Sprint(v.RoleBindings(), v.RoleRevision()); got != "[{token:ci [invoker viewer] 1}] 1" {
		t.Errorf("bound: %s", got)
	}
	if kept, ok := v.Token("ci"); !ok || kept.Expires != 9 || kept.Hash != access.HashToken("ci") || kept.Revision != 1 || len(v.Tokens()) != 1 {
		t.Errorf("kept: %+v, %v", kept, ok)
	}
	other := token("cd", 1, 0)
	other.Hash = access.HashToken("ci")
	another := token("ci", 1, 9)
	another.Hash = access.HashToken("other")
	run(t, s, bound("token:file", "viewer"))
	for what, command := range map[string][]byte{
		"another token of the name": meta.PutToken(another, "viewer", "invoker"),
		"with another end":          meta.PutToken(token("ci", 1, 8), "viewer", "invoker"),
		"with other roles":          meta.PutToken(token("ci", 1, 9), "viewer"),
		"the token under two names": meta.PutToken(other, "viewer"),
		"a name that has roles":     meta.PutToken(token("file", 1, 0), "viewer"),
		"a role that is none":       meta.PutToken(token("cd", 1, 0), "nobody"),
	} {
		t.Run(what, func(t *testing.T) { refused(t, s, meta.ErrConflict, command) })
	}
	for what, command := range map[string][]byte{
		"no roles": meta.PutToken(token("cd", 1, 0)), "no name": meta.PutToken(token("", 1, 0), "viewer"), "no hash": meta.PutToken(access.Token{Name: "cd"}, "viewer"),
	} {
		t.Run(what, func(t *testing.T) { refused(t, s, meta.ErrInvalid, command) })
	}
	loaded := meta.New()
	if err := loaded.Load(s.View().Index(), s.Dump()); err != nil || dump(loaded.View()) != dump(s.View()) || len(loaded.View().Tokens()) != 1 {
		t.Errorf("loaded: %v", err)
	}
	if r := run(t, s, meta.DeleteToken("ci")); !r.Changed || r.Revision != 3 {
		t.Errorf("removed: %+v", r)
	}
	if r := run(t, s, meta.DeleteToken("ci")); r.Changed {
		t.Errorf("removed again: %+v", r)
	}
	if v := s.View(); len(v.Tokens()) != 0 || fmt.Sprint(v.RoleBindings()) != "[{token:file [viewer] 2}]" {
		t.Errorf("left: %v, %v", v.Tokens(), v.RoleBindings())
	}
}

// If a token is removed or expires, a later token of the same name does not own
// the types that it owned.
func TestTokensInheritNoTypes(t *testing.T) {
	s := level2(t, meta.PutModule(module(1, "b", "a")), meta.Bind("a", digest(1), 1), meta.Bind("b", digest(1), 1))
	heir := func(made int64) []byte {
		later := token("ci", made, 0)
		later.Hash = access.HashToken("later")
		return meta.PutToken(later, "viewer")
	}
	run(t, s, meta.PutToken(token("ci", 1, 0), "deployer"))
	for _, entityType := range []string{"a", "b"} {
		run(t, s, meta.PutTypeOwner(entityType, meta.Ownership{Is: "token:ci"}))
	}
	// The client got no response and repeats the command.
	if r := run(t, s, meta.PutToken(token("ci", 2, 0), "deployer")); r.Changed {
		t.Errorf("put again: %+v", r)
	}
	run(t, s, meta.DeleteToken("ci"))
	if ownerOf(t, s, "a") != "token:ci" {
		t.Errorf("the type is %q's", ownerOf(t, s, "a"))
	}
	refused(t, s, meta.ErrConflict, heir(3))
	run(t, s, meta.PutTypeOwner("a", meta.Ownership{Was: "token:ci", Is: "group:team"}))
	refused(t, s, meta.ErrConflict, heir(4))
	run(t, s, meta.PutToken(token("cd", 5, 0), "viewer"))
	run(t, s, meta.PutTypeOwner("b", meta.Ownership{Was: "token:ci"}))
	run(t, s, heir(6))
	if _, kept := s.View().Token("ci"); !kept || ownerOf(t, s, "a") != "group:team" || ownerOf(t, s, "b") != "" {
		t.Errorf("kept %v; the types are %q's and %q's", kept, ownerOf(t, s, "a"), ownerOf(t, s, "b"))
	}

	run(t, s, meta.PutToken(token("brief", 10, 20), "deployer"))
	run(t, s, meta.PutTypeOwner("b", meta.Ownership{Is: "token:brief"}))
	run(t, s, meta.PutToken(token("sweeps", 20+2*3600, 0), "viewer"))
	if _, kept := s.View().Token("brief"); kept {
		t.Fatal("a token that expired two hours ago is kept")
	}
	refused(t, s, meta.ErrConflict, meta.PutToken(token("brief", 20+3*3600, 0), "viewer"))
}

// A token that expires does not count as a permanent admin.
func TestExpiringAdminDoesNotCount(t *testing.T) {
	s := level2(t)
	refused(t, s, meta.ErrConflict, meta.PutToken(token("root", 1, 9), access.RoleAdmin))
	run(t, s, meta.PutToken(token("short", 1, 9), "viewer"))
	refused(t, s, meta.ErrConflict, bound("token:short", access.RoleAdmin))
	run(t, s, meta.PutToken(token("root", 1, 0), access.RoleAdmin), bound("token:short", access.RoleAdmin))
	for _, command := range [][]byte{meta.DeleteToken("root"), meta.DeleteRoleBinding("token:root"), bound("token:root", "viewer")} {
		refused(t, s, meta.ErrConflict, command)
	}
	run(t, s, bound("group:ops", access.RoleAdmin), meta.DeleteToken("root"), meta.DeleteToken("short"))
	refused(t, s, meta.ErrConflict, meta.DeleteRoleBinding("group:ops"))
}

func TestFirstAdminIsCreatedOnce(t *testing.T) {
	s := level2(t, meta.PutFirstToken(token("root", 1, 0), access.RoleAdmin))
	run(t, s, meta.PutFirstToken(token("root", 2, 0), access.RoleAdmin)) // the same command from another node
	refused(t, s, meta.ErrConflict, meta.PutFirstToken(token("other", 1, 0), access.RoleAdmin))
	ops := access.Binding{Subject: "group:ops", Roles: []string{access.RoleAdmin}}
	refused(t, s, meta.ErrConflict, meta.PutFirstRoleBinding(ops))
	s = level2(t, meta.PutFirstRoleBinding(ops), meta.PutFirstRoleBinding(ops))
	refused(t, s, meta.ErrConflict, meta.PutFirstToken(token("root", 1, 0), access.RoleAdmin))
}

func TestExpiredTokensAreRemoved(t *testing.T) {
	const hour = 3600
	s := level2(t, meta.PutToken(token("root", 1, 0), access.RoleAdmin))
	for i := range access.MaxTokens - 1 {
		run(t, s, meta.PutToken(token(fmt.Sprint("t", i), 1, int64(100+i)), "viewer"))
	}
	refused(t, s, meta.ErrInvalid, meta.PutToken(token("more", hour+100, 0), "viewer"))
	// The name and the hash of a token that expired long ago can be reused.
	again := token("t1", hour+102, 0)
	again.Hash = access.HashToken("t0")
	refused(t, s, meta.ErrConflict, meta.PutToken(again, "viewer"))
	again.Name = "again"
	run(t, s, meta.PutToken(again, "viewer"))
	v := s.View()
	if _, kept := v.Token("t0"); kept || len(v.Tokens()) != access.MaxTokens-1 || len(v.RoleBindings()) != access.MaxTokens-1 {
		t.Errorf("kept: t0 %v, %d tokens, %d bindings", kept, len(v.Tokens()), len(v.RoleBindings()))
	}
	loaded := meta.New()
	if err := loaded.Load(v.Index(), s.Dump()); err != nil || dump(loaded.View()) != dump(v) {
		t.Errorf("loaded: %v", err)
	}
}

func TestTokensOfLaterReleaseAreUnsupported(t *testing.T) {
	hash, _ := access.HashToken("a").MarshalText()
	value := func(more string) []byte {
		return fmt.Appendf(nil, `{"v":1,"value":{"name":"ci","hash":"%s"%s}}`, hash, more)
	}
	if err := loads("token/ci", value(`,"hours":9`)); !errors.Is(err, meta.ErrUnsupported) {
		t.Errorf("with a member: %v", err)
	}
	if err := loads("token/cd", value("")); !errors.Is(err, meta.ErrCorrupt) {
		t.Errorf("of another name: %v", err)
	}
	if err := loads("token/ci", value("")); err != nil {
		t.Error(err)
	}
}

// Two machines agree on random commands. The bearer of a token has roles until
// the token is removed, and once there is a permanent admin, there is always at
// least one permanent admin.
func TestRandomTokensKeepTheInvariants(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 4))
		a, b := level2(t), level2(t)
		name := func() string { return fmt.Sprint("t", rng.IntN(4)) }
		role := func() string { return []string{"viewer", access.RoleAdmin}[rng.IntN(2)] }
		admin := false
		for now := range int64(300) {
			var body []byte
			switch rng.IntN(5) {
			case 0, 1:
				made := token(name(), now*1000, []int64{0, now*1000 + 500}[rng.IntN(2)])
				made.Hash = access.HashToken(name())
				body = meta.PutToken(made, role())
			case 2:
				body = meta.DeleteToken(name())
			case 3:
				body = bound("token:"+name(), role())
			default:
				body = meta.DeleteRoleBinding("token:" + name())
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
			hashes, still := map[access.TokenHash]bool{}, false
			for _, kept := range a.View().Tokens() {
				if hashes[kept.Hash] {
					t.Fatalf("seed %d: a token has two names after %s", seed, body)
				}
				hashes[kept.Hash] = true
			}
			for _, binding := range a.View().RoleBindings() {
				kept, _ := a.View().Token(binding.Subject[len("token:"):])
				still = still || binding.BindsAdmin() && kept.Expires == 0
			}
			if admin && !still {
				t.Fatalf("seed %d: nobody is admin for good any more after %s", seed, body)
			}
			admin = still
		}
		if !admin {
			t.Fatalf("seed %d: nobody was ever admin", seed)
		}
	}
}
