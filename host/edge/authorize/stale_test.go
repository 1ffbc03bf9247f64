package authorize

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/procedure"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// TestOldRolesAllowNoChanges: outdated roles still allow reads, and still deny
// what they denied.
func TestOldRolesAllowNoChanges(t *testing.T) {
	s := &state{}
	a := New(Options{
		Cluster: s,
		Logger:  slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	ann, staff, root := who(t, principal.Token, "ann"), who(t, principal.JWT, "bo", "staff"), who(t, principal.Token, "root")
	passed := func(p *principal.Principal, kind request.Kind) error {
		return a.AuthorizeForwarded(&request.Request{Kind: kind, Entity: sharding.EntityID{Type: "counter", ID: "ann/1"}, Name: "add", Principal: p, Roles: 1})
	}
	call := func(p *principal.Principal, path string) error {
		t := procedure.At(path)
		_, err := a.decideCall(maker{who: p}, t, authz.Call{Verb: t.Verb})
		return err
	}
	a.Set(authz.Compile(0, nil, nil))
	s.stale = true
	if err := call(root, clusterv1connect.ClusterServiceDownNodeProcedure); err != nil {
		t.Errorf("roles decide nothing: %v", err)
	}
	a.Set(rolesAt(1, enforced...))

	for _, fresh := range []bool{true, false} {
		s.stale = !fresh
		stale := func(err error) bool { return errors.Is(err, request.ErrRolesStale) }
		if err := passed(ann, request.Command); fresh && err != nil || !fresh && !stale(err) {
			t.Errorf("fresh %v, a command: %v", fresh, err)
		}
		if err := passed(ann, request.Deliver); err != nil {
			t.Errorf("fresh %v, what an entity sends: %v", fresh, err)
		}
		if err := passed(staff, request.Query); err != nil {
			t.Errorf("fresh %v, a query: %v", fresh, err)
		}
		var denied *request.DeniedError
		if err := passed(staff, request.Command); !errors.As(err, &denied) {
			t.Errorf("fresh %v, a command that roles refuse: %v", fresh, err)
		}
		for procedure, changes := range map[string]bool{
			entityv1connect.EntityServiceSendCommandProcedure: true, entityv1connect.EntityServiceSendCommandStreamProcedure: true,
			entityv1connect.EntityServiceDeleteEntityProcedure: true, modulev1connect.ModuleServiceActivateModuleProcedure: true,
			clusterv1connect.ClusterServicePutRoleProcedure: true, clusterv1connect.ClusterServiceDownNodeProcedure: true,
			entityv1connect.EntityServiceQueryEntityProcedure: false, entityv1connect.EntityServiceGetEntityProcedure: false,
			entityv1connect.EntityServiceSubscribeEventsProcedure: false, clusterv1connect.ClusterServiceGetClusterProcedure: false,
			clusterv1connect.ClusterServiceListRolesProcedure: false, modulev1connect.ModuleServiceDownloadModuleProcedure: false,
		} {
			if err := call(root, procedure); changes && !fresh && !stale(err) || (!changes || fresh) && err != nil {
				t.Errorf("fresh %v, %s: %v", fresh, procedure, err)
			}
		}
		ctx := t.Context() // not authenticated, which is checked before the age of the roles
		if err := a.Command(ctx, "counter", "x", "add", ""); !errors.As(err, &denied) {
			t.Errorf("fresh %v, nobody's: %v", fresh, err)
		}
	}
	if n := testutil.ToFloat64(a.stale); n != 7 {
		t.Errorf("%v refusals were counted", n)
	}
	if n := testutil.ToFloat64(a.refused[authv1.Verb_INVOKE]); n != 4 {
		t.Errorf("%v refusals of roles were counted", n)
	}
	if text := request.ErrRolesStale.Error(); !strings.Contains(text, "retry") {
		t.Error(text)
	}
}

// TestOpenStreamsOutliveOldRoles: a change of roles that arrives late ends the
// streams that it does not allow, and no stream ends because the roles
// before that change were outdated.
func TestOpenStreamsOutliveOldRoles(t *testing.T) {
	a := New(Options{
		Cluster: &state{stale: true},
		Logger:  slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	a.Set(rolesAt(1, enforced...))
	ended := false
	s := &openStream{
		a: a, by: maker{who: who(t, principal.Token, "root")}, target: procedure.At(entityv1connect.EntityServiceSendCommandStreamProcedure),
		calls: []authz.Call{{Verb: authv1.Verb_INVOKE}}, abort: func() { ended = true },
	}
	a.streams.add(s)
	a.Set(rolesAt(2, enforced...))
	if ended || s.leave() != nil {
		t.Error("the stream was ended")
	}
}
