package authorize

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding/access"
)

// lagging makes a node that does not know yet that ann lost her roles.
func lagging(t *testing.T, confirm func(a *Authorizer) error) (a *Authorizer, ann *principal.Principal) {
	t.Helper()
	a = New(Options{
		Cluster: &state{confirm: func() error { return confirm(a) }},
		Logger:  slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	before := []access.Binding{{Subject: "token:root", Roles: []string{access.RoleAdmin}}, {Subject: "token:ann", Roles: []string{access.RoleAdmin}}}
	a.Set(authz.Compile(1, nil, before))
	return a, who(t, principal.Token, "ann")
}

// without is the current table of the metadata, in which ann has no roles.
func without() *authz.Table {
	return authz.Compile(2, nil, []access.Binding{{Subject: "token:root", Roles: []string{access.RoleAdmin}}})
}

// TestMetadataChangesUseCurrentRoles: a node that lags behind
// allows no change of modules, settings, roles or the cluster with rights that
// were revoked before the call. Calls about entities do not read the metadata.
func TestMetadataChangesUseCurrentRoles(t *testing.T) {
	a, ann := lagging(t, func(a *Authorizer) error { a.Set(without()); return nil })
	ctx := by(t, ann)
	unary := func(procedure string, message any) error {
		a.table.Store(authz.Compile(1, nil, []access.Binding{{Subject: "token:ann", Roles: []string{access.RoleAdmin}}}))
		next := func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { return nil, nil }
		_, err := a.Interceptor().WrapUnary(next)(ctx, &asked{message: message, procedure: procedure})
		return err
	}
	for _, tt := range []struct {
		procedure string
		message   any
		refused   bool
	}{
		{clusterv1connect.ClusterServicePutRoleProcedure, &clusterv1.PutRoleRequest{}, true},
		{clusterv1connect.ClusterServicePutRoleBindingProcedure, &clusterv1.PutRoleBindingRequest{}, true},
		{clusterv1connect.ClusterServiceCreateTokenProcedure, &clusterv1.CreateTokenRequest{}, true},
		{clusterv1connect.ClusterServicePutSettingProcedure, &clusterv1.PutSettingRequest{Key: "k"}, true},
		{clusterv1connect.ClusterServiceDownNodeProcedure, &clusterv1.DownNodeRequest{}, true},
		{modulev1connect.ModuleServiceActivateModuleProcedure, &modulev1.ActivateModuleRequest{EntityType: "counter"}, true},
		{modulev1connect.ModuleServiceSetOwnerProcedure, &modulev1.SetOwnerRequest{EntityType: "counter"}, true},
		{entityv1connect.EntityServiceSendCommandProcedure, &entityv1.SendCommandRequest{EntityType: "counter", EntityId: "a"}, false},
		{entityv1connect.EntityServiceDeleteEntityProcedure, &entityv1.DeleteEntityRequest{EntityType: "counter", EntityId: "a"}, false},
		{clusterv1connect.ClusterServiceListRolesProcedure, &clusterv1.ListRolesRequest{}, false},
	} {
		if err := unary(tt.procedure, tt.message); tt.refused != (connect.CodeOf(err) == connect.CodePermissionDenied) || !tt.refused && err != nil {
			t.Errorf("%s: %v", tt.procedure, err)
		}
	}
}

// TestMetadataChangeFailsWithoutCurrentRoles: if the metadata cannot be read, a
// change of it fails, because the caller's current rights are not known.
func TestMetadataChangeFailsWithoutCurrentRoles(t *testing.T) {
	a, ann := lagging(t, func(*Authorizer) error { return request.ErrNotReady })
	ctx := by(t, ann)
	next := func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
		t.Error("the call was carried out")
		return nil, nil
	}
	_, err := a.Interceptor().WrapUnary(next)(ctx, &asked{message: &clusterv1.PutRoleRequest{}, procedure: clusterv1connect.ClusterServicePutRoleProcedure})
	if connect.CodeOf(err) != connect.CodeUnavailable {
		t.Error(err)
	}
	if err := a.Deploy(ctx, "counter"); !errors.Is(err, request.ErrNotReady) {
		t.Errorf("deploy: %v", err)
	}
	if _, err := a.Own(ctx, "counter", ""); !errors.Is(err, request.ErrNotReady) {
		t.Errorf("own: %v", err)
	}
}

// by returns the context of a call that a different node forwards for a caller.
func by(t *testing.T, p *principal.Principal) (ctx context.Context) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, leaderproxy.Path+strings.TrimPrefix(clusterv1connect.ClusterServiceCheckAccessProcedure, "/"), nil)
	r.Header.Set(principal.Header, principal.HeaderOf(principal.Said{Caller: p}))
	leaderproxy.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() })).ServeHTTP(httptest.NewRecorder(), r)
	return ctx
}

// asked is a request of a procedure.
type asked struct {
	connect.AnyRequest
	message   any
	procedure string
}

func (r *asked) Any() any           { return r.message }
func (r *asked) Spec() connect.Spec { return connect.Spec{Procedure: r.procedure} }
