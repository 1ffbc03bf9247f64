package authz

import (
	"fmt"
	"testing"

	"github.com/hostd/hostd/sharding/access"
)

// TestCallerCannotGrantRightsItLacks: a caller may only grant what its own rules
// allow and don't deny.
func TestCallerCannotGrantRightsItLacks(t *testing.T) {
	allow := func(r access.Rule, verbs ...string) access.Rule {
		r.Effect, r.Verbs = access.Allow, verbs
		return r
	}
	deny := func(r access.Rule, verbs ...string) access.Rule {
		r.Effect, r.Verbs = access.Deny, verbs
		return r
	}
	all := access.Rule{}
	types := func(names ...string) access.Rule { return access.Rule{Types: names} }
	ids := func(prefixes ...string) access.Rule { return access.Rule{IDPrefixes: prefixes} }
	commands := func(names ...string) access.Rule { return access.Rule{Commands: names} }
	role := func(rules ...access.Rule) access.Role { return access.Role{Name: "r", Rules: rules} }
	bound := func(name string, rules ...access.Rule) (access.Role, access.Binding) {
		return access.Role{Name: name, Rules: rules}, access.Binding{Subject: "token:" + name, Roles: []string{name}}
	}
	var roles []access.Role
	bindings := []access.Binding{{Subject: "token:root", Roles: []string{access.RoleAdmin}}}
	for name, rules := range map[string][]access.Rule{
		"officer": {allow(all, access.Security)},
		"every":   {allow(all, access.Any)},
		"limited": {allow(all, access.Any), deny(types("pay-*"), access.Invoke), deny(ids("vault/"), access.Query)},
		"team":    {allow(all, access.Security), allow(types("team-*"), access.Invoke, access.Query), allow(commands("get-*"), access.Read)},
		"own":     {allow(ids("${principal.name}/", "shared/"), access.Invoke)},
	} {
		r, b := bound(name, rules...)
		roles, bindings = append(roles, r), append(bindings, b)
	}
	r, _ := bound("held", deny(all, access.Export))
	roles, bindings = append(roles, r), append(bindings, access.Binding{Subject: "token:chief", Roles: []string{access.RoleAdmin, "held"}})
	table := Compile(1, roles, bindings)
	many := make([]string, access.MaxRuleEntries)
	for i := range many {
		many[i] = fmt.Sprintf("team-%d", i)
	}
	for _, tt := range []struct {
		what, who string
		role, was access.Role
		may       bool
	}{
		{"admin gives all", "root", role(allow(all, access.Any)), access.Role{}, true},
		{"also one who is denied something", "chief", role(allow(all, access.Any)), access.Role{}, true},
		{"every verb", "every", role(allow(all, access.Any)), access.Role{}, true},
		{"security gives security", "officer", role(allow(all, access.Security)), access.Role{}, true},
		{"security gives nothing else", "officer", role(allow(all, access.Read)), access.Role{}, false},
		{"security is not every verb", "officer", role(allow(all, access.Any)), access.Role{}, false},
		{"who has no role", "nobody", role(allow(all, access.Read)), access.Role{}, false},
		{"a rule that denies", "officer", role(deny(all, access.Invoke)), access.Role{}, true},
		{"one of the types", "team", role(allow(types("team-a"), access.Invoke)), access.Role{}, true},
		{"many of the types", "team", role(allow(types(many...), access.Invoke, access.Query)), access.Role{}, true},
		{"a beginning of the types", "team", role(allow(types("team-a*"), access.Invoke)), access.Role{}, true},
		{"the beginning itself", "team", role(allow(types("team-*"), access.Query)), access.Role{}, true},
		{"a shorter beginning", "team", role(allow(types("team*"), access.Invoke)), access.Role{}, false},
		{"another type beside", "team", role(allow(types("team-a", "pay"), access.Invoke)), access.Role{}, false},
		{"all types", "team", role(allow(all, access.Invoke)), access.Role{}, false},
		{"another verb", "team", role(allow(types("team-a"), access.Invoke, access.Deploy)), access.Role{}, false},
		{"one of the commands", "team", role(allow(access.Rule{Types: []string{"x"}, Commands: []string{"get-all"}}, access.Read)), access.Role{}, true},
		{"all commands", "team", role(allow(types("x"), access.Read)), access.Role{}, false},
		{"ids below its own", "own", role(allow(ids("own/a"), access.Invoke)), access.Role{}, true},
		{"ids of each by name", "own", role(allow(ids("${principal.name}/"), access.Invoke)), access.Role{}, false},
		{"ids of each within what is shared", "own", role(allow(ids("shared/${principal.name}/"), access.Invoke)), access.Role{}, true},
		{"ids above its own", "own", role(allow(ids("own"), access.Invoke)), access.Role{}, false},
		{"all ids", "own", role(allow(all, access.Invoke)), access.Role{}, false},
		{"what a rule denies it", "limited", role(allow(types("pay-a"), access.Invoke)), access.Role{}, false},
		{"more than a rule denies it", "limited", role(allow(types("p*"), access.Invoke)), access.Role{}, false},
		{"what has that in it", "limited", role(allow(all, access.Any)), access.Role{}, false},
		{"that with the same denied, which may be taken back", "limited", role(allow(all, access.Invoke), deny(types("pay-*"), access.Invoke)), access.Role{}, false},
		{"what has nothing of it", "limited", role(allow(types("order"), access.Invoke), allow(ids("a/"), access.Query)), access.Role{}, true},
		{"ids that may be denied it", "limited", role(allow(ids("${principal.name}/"), access.Query)), access.Role{}, false},
		{"a rule that denies is taken away", "limited", role(deny(all, access.Admin)), role(deny(types("pay-*"), access.Invoke), deny(all, access.Admin)), false},
		{"one that denied it nothing", "limited", role(deny(all, access.Admin)), role(deny(all, access.Deploy), deny(all, access.Admin)), true},
		{"one that denied what it has not", "officer", role(), role(deny(all, access.Deploy)), false},
		{"one that stays", "officer", role(deny(types("a"), access.Deploy)), role(deny(types("a"), access.Deploy)), true},
	} {
		if may := table.MayGive(token(tt.who), tt.role, tt.was); may != tt.may {
			t.Errorf("%s, %s: %v", tt.who, tt.what, may)
		}
	}
}

// TestGrantComparisonIsBounded: rules that would take too long to compare are rejected.
func TestGrantComparisonIsBounded(t *testing.T) {
	long := func(name string) access.Role {
		r := access.Role{Name: name}
		for i := range access.MaxRules {
			rule := access.Rule{Effect: access.Allow, Verbs: []string{access.Any}}
			for j := range access.MaxRuleEntries {
				rule.Types = append(rule.Types, fmt.Sprintf("%s-%d-%d", name, i, j))
			}
			r.Rules = append(r.Rules, rule)
		}
		return r
	}
	table := Compile(1, []access.Role{long("a")}, []access.Binding{{Subject: "token:root", Roles: []string{access.RoleAdmin}}, {Subject: "token:a", Roles: []string{"a"}}})
	if !table.MayGive(token("a"), access.Role{Name: "few", Rules: long("a").Rules[:2]}, access.Role{}) {
		t.Error("few rules are refused")
	}
	if table.MayGive(token("a"), long("a"), access.Role{}) {
		t.Error("millions of comparisons were made")
	}
}
