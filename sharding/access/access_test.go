package access

import (
	"errors"
	"strings"
	"testing"
)

func rule(change func(*Rule)) Rule {
	r := Rule{Effect: Allow, Verbs: []string{Invoke}, Types: []string{"order", "inv-*", "*"}, IDPrefixes: []string{"a", "u/${principal.name}/"}, Commands: []string{"add", "x*"}}
	change(&r)
	return r
}

func TestRolesAreBounded(t *testing.T) {
	long := strings.Repeat("a", MaxPatternBytes+1)
	for name, tt := range map[string]struct {
		role Role
		good bool
	}{
		"good":                   {Role{Name: "clerk", Rules: []Rule{rule(func(*Rule) {})}}, true},
		"deny":                   {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.Effect = Deny })}}, true},
		"every verb":             {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.Verbs = []string{Any} })}}, true},
		"no name":                {Role{Rules: []Rule{rule(func(*Rule) {})}}, false},
		"name":                   {Role{Name: "a b", Rules: []Rule{rule(func(*Rule) {})}}, false},
		"built in":               {Role{Name: "viewer", Rules: []Rule{rule(func(*Rule) {})}}, false},
		"no rules":               {Role{Name: "clerk"}, false},
		"quotas alone":           {Role{Name: "clerk", Quotas: Quotas{Streams: 1, FuelPerSecond: MaxQuota, Uploads: Unlimited}}, true},
		"quota below none":       {Role{Name: "clerk", Quotas: Quotas{Streams: -2}}, false},
		"large quota":            {Role{Name: "clerk", Quotas: Quotas{CompileSeconds: MaxQuota + 1}}, false},
		"many rules":             {Role{Name: "clerk", Rules: make([]Rule, MaxRules+1)}, false},
		"effect":                 {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.Effect = "maybe" })}}, false},
		"no verbs":               {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.Verbs = nil })}}, false},
		"unknown verb":           {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.Verbs = []string{"do"} })}}, false},
		"security denied":        {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.Effect, r.Verbs = Deny, []string{Security} })}}, false},
		"everything denied":      {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.Effect, r.Verbs = Deny, []string{Any} })}}, false},
		"type":                   {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.Types = []string{"Order"} })}}, false},
		"star within":            {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.Types = []string{"a*b"} })}}, false},
		"empty type":             {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.Types = []string{""} })}}, false},
		"many types":             {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.Types = make([]string, MaxRuleEntries+1) })}}, false},
		"long type":              {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.Types = []string{long} })}}, false},
		"variable at the end":    {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.IDPrefixes = []string{"u/${principal.name}"} })}}, false},
		"other variable":         {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.IDPrefixes = []string{"${principal.kind}/"} })}}, false},
		"variable twice":         {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.IDPrefixes = []string{"${principal.name}/${principal.name}/"} })}}, false},
		"empty prefix":           {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.IDPrefixes = []string{""} })}}, false},
		"control character":      {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.Commands = []string{"a\n"} })}}, false},
		"long command":           {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.Commands = []string{long} })}}, false},
		"prefix that is no text": {Role{Name: "clerk", Rules: []Rule{rule(func(r *Rule) { r.IDPrefixes = []string{"\xff"} })}}, false},
	} {
		if err := tt.role.Check(); (err == nil) != tt.good || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, r := range BuiltIn() {
		for _, rule := range r.Rules {
			if err := rule.check(); err != nil || rule.Effect != Allow {
				t.Errorf("%s: %v", r.Name, err)
			}
		}
	}
}

func TestBindingsAreBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		binding Binding
		good    bool
	}{
		"token":            {Binding{Subject: "token:ci", Roles: []string{"viewer", "clerk"}}, true},
		"jwt":              {Binding{Subject: "jwt:https://a|b:c", Roles: []string{RoleAdmin}}, true},
		"group":            {Binding{Subject: "group:ops", Roles: []string{RoleAdmin}}, true},
		"anonymous":        {Binding{Subject: "anonymous", Roles: []string{"viewer"}}, true},
		"anonymous admin":  {Binding{Subject: "anonymous", Roles: []string{RoleAdmin}}, false},
		"anonymous, named": {Binding{Subject: "anonymous:x", Roles: []string{"viewer"}}, false},
		"no kind":          {Binding{Subject: "ci", Roles: []string{"viewer"}}, false},
		"no name":          {Binding{Subject: "token:", Roles: []string{"viewer"}}, false},
		"unknown kind":     {Binding{Subject: "user:ci", Roles: []string{"viewer"}}, false},
		"long":             {Binding{Subject: "token:" + strings.Repeat("a", MaxSubjectBytes), Roles: []string{"viewer"}}, false},
		"no text":          {Binding{Subject: "token:\xff", Roles: []string{"viewer"}}, false},
		"no roles":         {Binding{Subject: "token:ci"}, false},
		"twice":            {Binding{Subject: "token:ci", Roles: []string{"a", "a"}}, false},
		"no role":          {Binding{Subject: "token:ci", Roles: []string{""}}, false},
		"many":             {Binding{Subject: "token:ci", Roles: make([]string, MaxBindingRoles+1)}, false},
	} {
		if err := tt.binding.Check(); (err == nil) != tt.good || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
