package authorize

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

// TestOwnersMayChangeTheirTypes: a type may be changed by its owner, by members of a group that
// owns it, and by callers that may admin the type. A type without an owner
// belongs to the first caller that takes it.
func TestOwnersMayChangeTheirTypes(t *testing.T) {
	ann, bo := &principal.Principal{Kind: principal.Token, Name: "ann"}, &principal.Principal{Kind: principal.JWT, Name: "bo", Groups: []string{"team-a"}}
	root, half := &principal.Principal{Kind: principal.Token, Name: "root"}, &principal.Principal{Kind: principal.Token, Name: "half"}
	odd, nobody := &principal.Principal{Kind: principal.JWT, Name: "a\nb"}, &principal.Principal{Kind: principal.Anonymous}
	bindings := []access.Binding{{Subject: "token:root", Roles: []string{access.RoleAdmin}}, {Subject: "token:half", Roles: []string{"half"}}, {Subject: "token:ann", Roles: []string{"deployer"}}}
	roles := []access.Role{{Name: "half", Rules: []access.Rule{{Effect: access.Allow, Verbs: []string{access.Admin}, Types: []string{"inv-*"}}}}}
	a := New(Options{Logger: slog.New(slog.DiscardHandler), Cluster: &state{}})
	a.Set(authz.Compile(0, nil, nil))
	if becomes, _, err := a.owns(ann, "order", "token:other"); becomes != "token:other" || err != nil {
		t.Errorf("while roles decide nothing: %q, %v", becomes, err)
	}
	a.Set(authz.Compile(1, roles, bindings))
	for _, tt := range []struct {
		who         *principal.Principal
		typ, owner  string
		becomes     string
		belongsElse bool
	}{
		{ann, "order", "", "token:ann", false}, {bo, "order", "", "jwt:bo", false}, {odd, "order", "", "", false}, {nobody, "order", "", "", false},
		{ann, "order", "token:ann", "token:ann", false}, {bo, "order", "group:team-a", "group:team-a", false}, {root, "order", "token:ann", "token:ann", false},
		{half, "inv-1", "token:ann", "token:ann", false}, {half, "order", "token:ann", "", true},
		{bo, "order", "token:ann", "", true}, {ann, "order", "group:team-a", "", true}, {ann, "order", "jwt:ann", "", true}, {bo, "order", "group:bo", "", true}, {nobody, "order", "token:", "", true},
	} {
		becomes, _, err := a.owns(tt.who, tt.typ, tt.owner)
		var not *notOwnerError
		if becomes != tt.becomes || errors.As(err, &not) != tt.belongsElse {
			t.Errorf("%s %q, %s of %q: becomes %q's, %v", tt.who.Kind, tt.who.Name, tt.typ, tt.owner, becomes, err)
			continue
		}
		if err == nil {
			continue
		}
		info := not.Detail().(*errdetails.ErrorInfo)
		if info.GetReason() != "NOT_OWNER" || info.GetMetadata()["type"] != tt.typ || !strings.Contains(err.Error(), `"`+tt.typ+`"`) || strings.Contains(err.Error(), tt.owner) && tt.owner != "token:" {
			t.Errorf("it says %q, %v", err, info)
		}
	}
}
