package edge_test

import (
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/edge"
)

// make creates a token on behalf of a caller.
func (g *guarded) make(t *testing.T, as, name string, roles ...string) error {
	t.Helper()
	token := authn.NewToken()
	hash := sha256.Sum256([]byte(token))
	_, err := g.clusterAs(as).CreateToken(t.Context(), connect.NewRequest(&clusterv1.CreateTokenRequest{TokenName: name, TokenSha256: hash[:], Roles: roles}))
	if err == nil {
		g.tokens[name] = token
	}
	return err
}

func TestTokenCreationNeedsRightsOfItsRoles(t *testing.T) {
	g := guard(t, edge.Options{Admin: true}, "root", "ann")
	g.auth.Set(authz.Compile(0, nil, nil))
	if err := g.make(t, "root", "next", "admin"); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("the first admin is somebody else: %v", err)
	}
	g.begin(t)
	wantDenied(t, "without a role", g.make(t, "ann", "bo", "viewer"), true)
	if err := g.make(t, "root", "ann", "viewer"); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a name of the token file: %v", err)
	}
	if err := g.make(t, "root", "bo", "viewer"); err != nil {
		t.Fatal(err)
	}
	if err := g.make(t, "root", "bo", "viewer"); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("another token of the name: %v", err)
	}
	for what, req := range map[string]*clusterv1.CreateTokenRequest{
		"no hash":    {TokenName: "c", Roles: []string{"viewer"}},
		"no SHA-256": {TokenName: "c", TokenSha256: make([]byte, 31), Roles: []string{"viewer"}},
		"no name":    {TokenSha256: []byte(sha256.New().Sum(nil)), Roles: []string{"viewer"}},
		"no roles":   {TokenName: "c", TokenSha256: make([]byte, 32)},
		"at an end":  {TokenName: "c", TokenSha256: make([]byte, 32), Roles: []string{"viewer"}, ExpiresAt: timestamppb.New(time.Unix(0, 0))},
	} {
		if _, err := g.clusterAs("root").CreateToken(t.Context(), connect.NewRequest(req)); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Its bearer has the role immediately.
	me, err := g.clusterAs("bo").CheckAccess(t.Context(), connect.NewRequest(&clusterv1.CheckAccessRequest{Verb: "query", EntityType: "counter"}))
	if err != nil || !me.Msg.GetAllowed() || me.Msg.GetName() != "bo" || !slices.Equal(me.Msg.GetRoles(), []string{"viewer"}) {
		t.Errorf("its bearer is %v, %v", me, err)
	}
	list, err := g.clusterAs("root").ListTokens(t.Context(), connect.NewRequest(&clusterv1.ListTokensRequest{}))
	if err != nil || len(list.Msg.GetTokens()) != 1 || list.Msg.GetTokens()[0].GetTokenName() != "bo" || !slices.Equal(list.Msg.GetTokens()[0].GetRoles(), []string{"viewer"}) || list.Msg.GetTokens()[0].GetExpiresAt() != nil {
		t.Errorf("they are %v, %v", list, err)
	}
	_, err = g.clusterAs("bo").ListTokens(t.Context(), connect.NewRequest(&clusterv1.ListTokensRequest{}))
	wantDenied(t, "a viewer lists tokens", err, true)
	_, err = g.clusterAs("bo").DeleteToken(t.Context(), connect.NewRequest(&clusterv1.DeleteTokenRequest{TokenName: "bo"}))
	wantDenied(t, "a viewer removes one", err, true)
	if _, err := g.clusterAs("root").DeleteToken(t.Context(), connect.NewRequest(&clusterv1.DeleteTokenRequest{TokenName: "bo"})); err != nil {
		t.Error(err)
	}
	if _, err := g.clusterAs("bo").CheckAccess(t.Context(), connect.NewRequest(&clusterv1.CheckAccessRequest{})); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("after its removal: %v", err)
	}
	bindings, err := g.clusterAs("root").ListRoleBindings(t.Context(), connect.NewRequest(&clusterv1.ListRoleBindingsRequest{}))
	if err != nil || len(bindings.Msg.GetBindings()) != 1 {
		t.Errorf("bindings that are left: %v, %v", bindings, err)
	}
}
