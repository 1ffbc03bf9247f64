package authz

import (
	"testing"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

// A prefix with ${principal} distinguishes callers with the same name by their
// kind.
func TestPrincipalInPrefixIncludesItsKind(t *testing.T) {
	roles := []access.Role{{Name: "own", Rules: []access.Rule{{Effect: access.Allow, Verbs: []string{access.Query}, IDPrefixes: []string{"u/${principal}/"}}}}}
	table := Compile(1, roles, []access.Binding{
		{Subject: "token:root", Roles: []string{access.RoleAdmin}},
		{Subject: "token:alice", Roles: []string{"own"}}, {Subject: "jwt:alice", Roles: []string{"own"}}, {Subject: "group:eve", Roles: []string{"own"}},
	})
	token := &principal.Principal{Kind: principal.Token, Name: "alice"}
	jwt := &principal.Principal{Kind: principal.JWT, Name: "alice"}
	odd := &principal.Principal{Kind: principal.JWT, Name: "alice/x", Groups: []string{"eve"}}
	for _, tt := range []struct {
		who  *principal.Principal
		id   string
		want Decision
	}{
		{token, "u/token:alice/1", Allowed},
		{token, "u/jwt:alice/1", Unmatched},
		{token, "u/alice/1", Unmatched},
		{jwt, "u/jwt:alice/1", Allowed},
		{jwt, "u/token:alice/1", Unmatched},
		{odd, "u/jwt:alice/x/1", Unmatched}, // its name contains the separator
	} {
		if got := table.Decide(tt.who, Call{Verb: authv1.Verb_QUERY, Types: One, Type: "order", IDs: One, ID: tt.id}); got != tt.want {
			t.Errorf("%s:%s asks for %s: %v, want %v", tt.who.Kind, tt.who.Name, tt.id, got, tt.want)
		}
	}
}
