package authz

import (
	"testing"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/sharding/access"
)

// TestStateIsDeniedIfQueryIsDenied: a caller who may not make a query must
// not get the state that contains its answer.
func TestStateIsDeniedIfQueryIsDenied(t *testing.T) {
	rules := []access.Rule{
		{Effect: access.Allow, Verbs: []string{access.Query, access.Invoke, access.Operate}},
		{Effect: access.Deny, Verbs: []string{access.Query, access.Invoke, access.Operate}, Types: []string{"account"}, IDPrefixes: []string{"vip/"}, Commands: []string{"balance", "debug-*"}},
	}
	table := Compile(1, []access.Role{{Name: "r", Rules: rules}}, []access.Binding{{Subject: "token:root", Roles: []string{access.RoleAdmin}}, {Subject: "token:ann", Roles: []string{"r"}}})
	for _, tt := range []struct {
		verb        authv1.Verb
		typ, id, by string
		want        Decision
	}{
		{authv1.Verb_QUERY, "account", "vip/1", "balance", Denied},
		{authv1.Verb_QUERY, "account", "vip/1", "debug-all", Denied},
		{authv1.Verb_QUERY, "account", "vip/1", "name", Allowed},
		{authv1.Verb_QUERY, "account", "vip/1", "", Denied},
		{authv1.Verb_QUERY, "account", "b/1", "", Allowed},
		{authv1.Verb_QUERY, "order", "vip/1", "", Allowed},
		{authv1.Verb_OPERATE, "account", "vip/1", "", Allowed}, // names no query and returns no answer of one
		{authv1.Verb_INVOKE, "account", "vip/1", "open", Allowed},
	} {
		if got := table.Decide(token("ann"), Call{Verb: tt.verb, Types: One, Type: tt.typ, IDs: One, ID: tt.id, Command: tt.by}); got != tt.want {
			t.Errorf("%v %q of %s/%s: %v, want %v", tt.verb, tt.by, tt.typ, tt.id, got, tt.want)
		}
	}
}
