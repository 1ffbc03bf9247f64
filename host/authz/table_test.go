package authz

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

func token(name string) *principal.Principal {
	return &principal.Principal{Kind: principal.Token, Name: name}
}

func send(entityType, id, command string) Call {
	return Call{Verb: authv1.Verb_INVOKE, Types: One, Type: entityType, IDs: One, ID: id, Command: command}
}

func shop() *Table {
	return Compile(7, []access.Role{
		{Name: "clerk", Rules: []access.Rule{
			{Effect: access.Allow, Verbs: []string{access.Invoke, access.Query}, Types: []string{"order", "inv-*"}, IDPrefixes: []string{"${principal.name}/", "shared/"}, Commands: []string{"add", "get*"}},
			{Effect: access.Deny, Verbs: []string{access.Invoke}, Types: []string{"inv-secret"}},
		}},
		{Name: "warden", Rules: []access.Rule{{Effect: access.Deny, Verbs: []string{access.Invoke, access.Read}, IDPrefixes: []string{"shared/locked-"}}}},
		{Name: "reader", Rules: []access.Rule{{Effect: access.Allow, Verbs: []string{access.Read}, Types: []string{"order", "a*"}, IDPrefixes: []string{"${principal.name}/"}}}},
	}, []access.Binding{
		{Subject: "token:root", Roles: []string{access.RoleAdmin}},
		{Subject: "token:al", Roles: []string{"clerk", "reader"}},
		{Subject: "token:al/ice", Roles: []string{"clerk"}},
		{Subject: "group:staff", Roles: []string{"clerk"}},
		{Subject: "group:watched", Roles: []string{"warden"}},
		{Subject: "anonymous", Roles: []string{"clerk", "invoker"}},
	})
}

func TestDecisions(t *testing.T) {
	table := shop()
	staff := &principal.Principal{Kind: principal.JWT, Name: "bo", Groups: []string{"staff", "other", "watched"}}
	anonymous := &principal.Principal{Kind: principal.Anonymous}
	read := func(types Extent, entityType string, ids Extent, id string) Call {
		return Call{Verb: authv1.Verb_READ, Types: types, Type: entityType, IDs: ids, ID: id}
	}
	for _, tt := range []struct {
		who  *principal.Principal
		call Call
		want Decision
	}{
		{token("al"), send("order", "al/1", "add"), Allowed},
		{token("al"), send("inv-a", "shared/1", "get-all"), Allowed},
		{token("al"), send("order", "alice/1", "add"), Unmatched},      // belongs to another caller with a similar name
		{token("al"), send("order", "al", "add"), Unmatched},           // shorter than the prefix
		{token("al"), send("orders", "al/1", "add"), Unmatched},        // another type with the same beginning
		{token("al"), send("order", "al/1", "added"), Unmatched},       // another command
		{token("al"), send("inv-secret", "al/1", "add"), Denied},       // denied by the same role
		{token("al/ice"), send("order", "al/ice/1", "add"), Unmatched}, // the principal has a slash: its prefix "al/ice/" would match ids of the principal al
		{token("al/ice"), send("order", "shared/1", "add"), Allowed},
		{token("bo"), send("order", "bo/1", "add"), Unmatched}, // bound to the JWT, not to the token
		{staff, send("order", "bo/1", "add"), Allowed},
		{staff, send("order", "shared/1", "add"), Allowed},
		{staff, send("order", "shared/locked-1", "add"), Denied}, // denied by the role of another group
		{anonymous, send("order", "/1", "add"), Allowed},         // allowed for every invoker, not by an empty name
		{anonymous, read(One, "order", One, "/1"), Unmatched},
		{token("root"), send("any", "thing", "at all"), Allowed},
		{token("root"), Call{Verb: authv1.Verb_SECURITY}, Allowed},
		{token("root"), Call{}, Unmatched},
		{token("root"), Call{Verb: 99}, Unmatched},
		{token("nobody"), Call{Verb: authv1.Verb_SELF}, Allowed},
		{token("nobody"), Call{Verb: authv1.Verb_READ}, Unmatched},
		{token("al"), read(One, "order", One, "al/1"), Allowed},
		{token("al"), read(One, "order", Beginning, "al/"), Allowed},
		{token("al"), read(One, "order", Beginning, "al/x"), Allowed},
		{token("al"), read(One, "order", Beginning, "al"), Unmatched}, // more than its own ids
		{token("al"), read(One, "order", Beginning, ""), Unmatched},
		{token("al"), read(One, "order", Nothing, ""), Unmatched},
		{token("al"), read(Beginning, "", One, "al/1"), Unmatched},
		{token("al"), read(Nothing, "", Nothing, ""), Unmatched},
		{staff, read(One, "order", Beginning, "shared/"), Denied}, // some of them are denied
		{staff, read(One, "order", Beginning, ""), Denied},
		{staff, read(One, "order", Beginning, "shared/m"), Unmatched},
	} {
		if got := table.Decide(tt.who, tt.call); got != tt.want {
			t.Errorf("%s %s, %+v: %d, want %d", tt.who.Kind, tt.who.Name, tt.call, got, tt.want)
		}
	}
	if got := fmt.Sprint(table.RolesOf(token("al")), table.RolesOf(staff), table.Revision(), table.Enforced()); got != "[clerk reader] [clerk warden] 7 true" {
		t.Errorf("the table says %s", got)
	}
	if Compile(1, nil, []access.Binding{{Subject: "token:a", Roles: []string{"viewer"}}}).Enforced() {
		t.Error("roles decide although nobody is admin")
	}
}

func TestEver(t *testing.T) {
	table := Compile(1, []access.Role{
		{Name: "some", Rules: []access.Rule{{Effect: access.Allow, Verbs: []string{access.Invoke}, Types: []string{"order"}}}},
		{Name: "none", Rules: []access.Rule{{Effect: access.Deny, Verbs: []string{access.Invoke}}}},
		{Name: "less", Rules: []access.Rule{{Effect: access.Deny, Verbs: []string{access.Invoke}, Types: []string{"order"}}}},
	}, []access.Binding{
		{Subject: "token:a", Roles: []string{"some", "less"}}, {Subject: "token:b", Roles: []string{"some", "none"}},
		{Subject: "token:c", Roles: []string{"some"}}, {Subject: "group:none", Roles: []string{"none"}},
	})
	for who, want := range map[*principal.Principal]Decision{
		token("a"): Allowed, token("b"): Denied, token("c"): Allowed, token("d"): Unmatched,
		{Kind: principal.Token, Name: "c", Groups: []string{"none"}}: Denied,
	} {
		if got := table.Ever(who, authv1.Verb_INVOKE); got != want {
			t.Errorf("%s: %d, want %d", who.Name, got, want)
		}
	}
	if table.Ever(token("a"), authv1.Verb_READ) != Unmatched || table.Ever(token("d"), authv1.Verb_SELF) != Allowed || table.Ever(token("a"), 99) != Unmatched {
		t.Error("a verb that nothing is said of")
	}
}

// Names compares a subject with a caller and its groups.
func TestNames(t *testing.T) {
	p := &principal.Principal{Kind: principal.JWT, Name: "a:b", Groups: []string{"g"}}
	for subject, want := range map[string]bool{"jwt:a:b": true, "token:a:b": false, "group:g": true, "group:a:b": false, "jwt:a": false, "anonymous": false} {
		if Names(subject, p) != want {
			t.Errorf("%s: not %v", subject, want)
		}
	}
	if !Names("anonymous", &principal.Principal{Kind: principal.Anonymous}) {
		t.Error("the anonymous are not anonymous")
	}
}

// naive decides from roles and bindings that aren't compiled.
type naive struct {
	roles    []access.Role
	bindings []access.Binding
}

func (n naive) decide(p *principal.Principal, c Call) Decision {
	subjects := []string{string(p.Kind) + ":" + p.Name}
	if p.Kind == principal.Anonymous {
		subjects[0] = "anonymous"
	}
	for _, g := range p.Groups {
		subjects = append(subjects, "group:"+g)
	}
	out := Unmatched
	for _, b := range n.bindings {
		for _, r := range append(access.BuiltIn(), n.roles...) {
			if !slices.Contains(subjects, b.Subject) || !slices.Contains(b.Roles, r.Name) {
				continue
			}
			for _, rule := range r.Rules {
				if !slices.Contains(rule.Verbs, "*") && !slices.Contains(rule.Verbs, VerbText(c.Verb)) {
					continue
				}
				switch {
				case rule.Effect == access.Deny && matchesSome(rule, p.Name, c):
					return Denied
				case rule.Effect == access.Allow && matchesWhole(rule, p.Name, c):
					out = Allowed
				}
			}
		}
	}
	return out
}

func matchesOne(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if stem, ok := strings.CutSuffix(p, "*"); ok {
			return len(text) >= len(stem) && text[:len(stem)] == stem
		}
		return p == text
	})
}

// expanded returns a prefix with the name in place of the variable, if that is
// possible.
func expanded(p, name string) (string, bool) {
	if i := strings.Index(p, access.NameVariable); i >= 0 {
		behind := p[i+len(access.NameVariable):]
		if name == "" || strings.Contains(name, behind[:1]) {
			return "", false
		}
	}
	return strings.ReplaceAll(p, access.NameVariable, name), true
}

func matchesWhole(r access.Rule, name string, c Call) bool {
	if len(r.Types) > 0 && !(c.Types == One && matchesOne(r.Types, c.Type)) && !(c.Types == Beginning && slices.Contains(r.Types, "*")) {
		return false
	}
	if len(r.Commands) > 0 && (c.Command == "" || !matchesOne(r.Commands, c.Command)) {
		return false
	}
	return len(r.IDPrefixes) == 0 || c.IDs != Nothing && slices.ContainsFunc(r.IDPrefixes, func(p string) bool {
		text, ok := expanded(p, name)
		return ok && strings.HasPrefix(c.ID, text)
	})
}

func matchesSome(r access.Rule, name string, c Call) bool {
	if len(r.Types) > 0 && !(c.Types == One && matchesOne(r.Types, c.Type)) && c.Types != Beginning {
		return false
	}
	state := c.Verb == authv1.Verb_QUERY && c.Command == ""
	if len(r.Commands) > 0 && !state && (c.Command == "" || !matchesOne(r.Commands, c.Command)) {
		return false
	}
	return len(r.IDPrefixes) == 0 || c.IDs != Nothing && slices.ContainsFunc(r.IDPrefixes, func(p string) bool {
		text, ok := expanded(p, name)
		return !ok || strings.HasPrefix(c.ID, text) || c.IDs == Beginning && strings.HasPrefix(text, c.ID)
	})
}

// TestTableMatchesNaiveImplementation compares random decisions. It uses few names,
// so that rules match often.
func TestTableMatchesNaiveImplementation(t *testing.T) {
	seen := map[Decision]int{}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 5))
		pick := func(from ...string) string { return from[rng.IntN(len(from))] }
		some := func(most int, from ...string) (out []string) {
			for range rng.IntN(most + 1) {
				out = append(out, pick(from...))
			}
			return out
		}
		var n naive
		for i := range 4 {
			r := access.Role{Name: fmt.Sprint("r", i)}
			for range 1 + rng.IntN(3) {
				rule := access.Rule{
					Effect: access.Effect(pick("allow", "allow", "deny")), Verbs: append(some(2, access.Verbs[:3]...), pick(access.Verbs[:3]...)),
					Types: some(2, "a", "ab", "a*", "b*", "*"), IDPrefixes: some(2, "a", "a/", "ab/", "${principal.name}/", "a${principal.name}b", "u/${principal.name}-"),
					Commands: some(2, "x", "xy", "x*", "*"),
				}
				if rule.Effect == access.Allow && rng.IntN(5) == 0 {
					rule.Verbs = []string{access.Any}
				}
				r.Rules = append(r.Rules, rule)
			}
			if err := r.Check(); err != nil {
				t.Fatal(err)
			}
			n.roles = append(n.roles, r)
		}
		for _, subject := range []string{"token:a", "token:b", "jwt:a", "jwt:a/b", "certificate:a", "group:g", "group:h", "anonymous"} {
			if roles := some(3, "r0", "r1", "r2", "r3", "viewer", "admin"); len(roles) > 0 {
				n.bindings = append(n.bindings, access.Binding{Subject: subject, Roles: roles})
			}
		}
		table := Compile(seed, n.roles, n.bindings)
		for range 200 {
			p := &principal.Principal{Kind: principal.Kind(pick("token", "jwt", "certificate", "anonymous")), Name: pick("a", "b", "a/b", "c"), Groups: some(2, "g", "h", "i")}
			if p.Kind == principal.Anonymous {
				p.Name = ""
			}
			c := Call{Verb: authv1.Verb(1 + rng.IntN(4)), Types: Extent(rng.IntN(3)), IDs: Extent(rng.IntN(3))}
			if c.Types == One {
				c.Type = pick("a", "ab", "b", "c")
			}
			if c.IDs != Nothing {
				c.ID = pick("a", "a/", "a/1", "ab/1", "aab", "aabc", "u/a-", "u/b-1", "", "u", "u/")
			}
			if rng.IntN(2) == 0 {
				c.Command = pick("x", "xy", "y")
			}
			got, want := table.Decide(p, c), n.decide(p, c)
			if got != want {
				t.Fatalf("seed %d: %+v, %+v: %d, the naive one says %d\nroles %+v\nbindings %+v", seed, p, c, got, want, n.roles, n.bindings)
			}
			seen[got]++
			ever := table.Ever(p, c.Verb)
			if got == Allowed && ever != Allowed {
				t.Fatalf("seed %d: %+v may %+v, and is said never to: %d", seed, p, c, ever)
			}
		}
	}
	for _, d := range []Decision{Unmatched, Denied, Allowed} {
		if seen[d] < 1000 {
			t.Errorf("decision %d was made only %d times", d, seen[d])
		}
	}
}

// FuzzPatterns: the table decides like the naive implementation for arbitrary
// rules and calls.
func FuzzPatterns(f *testing.F) {
	f.Add("order", "${principal.name}/", "add", "al", "order", "al/1", "add", uint8(5))
	f.Add("inv-*", "u/${principal.name}-x", "a*", "a-b", "inv-a", "u/a-b-x", "ab", uint8(6))
	f.Add("*", "", "", "", "", "", "", uint8(10))
	f.Fuzz(func(t *testing.T, typePattern, idPrefix, commandPattern, name, entityType, id, command string, extents uint8) {
		rule := access.Rule{Verbs: []string{access.Read}}
		if typePattern != "" {
			rule.Types = []string{typePattern}
		}
		if idPrefix != "" {
			rule.IDPrefixes = []string{idPrefix}
		}
		if commandPattern != "" {
			rule.Commands = []string{commandPattern}
		}
		c := Call{Verb: authv1.Verb_READ, Types: Extent(extents % 3), IDs: Extent(extents / 3 % 3), Command: command}
		if c.Types == One {
			c.Type = entityType
		}
		if c.IDs != Nothing {
			c.ID = id
		}
		p := token(name)
		for _, effect := range []access.Effect{access.Allow, access.Deny} {
			rule.Effect = effect
			n := naive{
				roles:    []access.Role{{Name: "r", Rules: []access.Rule{rule}}},
				bindings: []access.Binding{{Subject: "token:" + name, Roles: []string{"r"}}},
			}
			if n.roles[0].Check() != nil || n.bindings[0].Check() != nil {
				return
			}
			if got, want := Compile(1, n.roles, n.bindings).Decide(p, c), n.decide(p, c); got != want {
				t.Fatalf("%+v, name %q, %+v: %d, the naive one says %d", rule, name, c, got, want)
			}
		}
	})
}

func TestDecisionsAllocateNothing(t *testing.T) {
	table, p, c := shop(), token("al"), send("inv-a", "al/1", "get-all")
	staff := &principal.Principal{Kind: principal.JWT, Name: "bo", Groups: []string{"staff", "other", "watched"}}
	if n := testing.AllocsPerRun(1000, func() {
		if table.Decide(p, c) != Allowed || table.Decide(staff, send("order", "bo/1", "add")) != Allowed || table.Decide(p, send("a", "b", "c")) != Unmatched {
			t.Fatal("it decides otherwise")
		}
		table.Ever(p, authv1.Verb_INVOKE)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDecide(b *testing.B) {
	table := shop()
	for name, p := range map[string]*principal.Principal{"token": token("al"), "groups": {Kind: principal.JWT, Name: "bo", Groups: []string{"other", "staff", "watched"}}} {
		c := send("inv-a", p.Name+"/1", "get-all")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if table.Decide(p, c) != Allowed {
					b.Fatal("it decides otherwise")
				}
			}
		})
	}
}
