package authorize

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/procedure"
	"github.com/hostd/hostd/host/request"
)

// TestClosedUntilSomebodyIsAdmin: while no subject has the role admin, a
// credential alone gives no rights.
func TestClosedUntilSomebodyIsAdmin(t *testing.T) {
	s := &state{closed: true}
	a := New(Options{Cluster: s, Logger: slog.New(slog.DiscardHandler)})
	a.Set(authz.Compile(0, nil, nil))
	ann := who(t, principal.JWT, "ann")
	decide := func(by maker, path string) error {
		to := procedure.At(path)
		if to == nil {
			t.Fatalf("there is no procedure %s", path)
		}
		_, err := a.decide(by, to, authz.Call{Verb: to.Verb})
		return err
	}
	others := []string{
		entityv1connect.EntityServiceSendCommandProcedure, entityv1connect.EntityServiceQueryEntityProcedure, entityv1connect.EntityServiceSubscribeEventsProcedure,
		modulev1connect.ModuleServiceUploadModuleProcedure, modulev1connect.ModuleServiceListModulesProcedure, clusterv1connect.ClusterServiceGetClusterProcedure,
		clusterv1connect.ClusterServicePutRoleBindingProcedure, clusterv1connect.ClusterServiceDownNodeProcedure,
	}
	var denied *request.DeniedError
	for _, procedure := range others {
		if err := decide(maker{who: ann}, procedure); !errors.As(err, &denied) {
			t.Errorf("%s: %v", procedure, err)
		}
		if err := decide(maker{who: ann, passed: true}, procedure); err != nil {
			t.Errorf("%s, which another node has let in: %v", procedure, err)
		}
	}
	if err := decide(maker{who: ann}, clusterv1connect.ClusterServiceCheckAccessProcedure); err != nil {
		t.Errorf("what a caller may: %v", err)
	}
	s.closed = false
	for _, procedure := range others {
		if err := decide(maker{who: ann}, procedure); err != nil {
			t.Errorf("open, %s: %v", procedure, err)
		}
	}
	s.closed = true
	a.Set(rolesAt(1, enforced...))
	if err := decide(maker{who: who(t, principal.Token, "root")}, clusterv1connect.ClusterServiceDownNodeProcedure); err != nil {
		t.Errorf("once somebody is admin: %v", err)
	}
}
