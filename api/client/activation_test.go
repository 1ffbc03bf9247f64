package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
)

// laggingModules is a node that has not caught up: it still serves module "old" of
// type "a", although no rollout is in progress any more.
type laggingModules struct {
	modulev1connect.UnimplementedModuleServiceHandler
	changes []*modulev1.ActivationChange
}

func (*laggingModules) GetRollout(context.Context, *connect.Request[modulev1.GetRolloutRequest]) (*connect.Response[modulev1.GetRolloutResponse], error) {
	return nil, connect.NewError(connect.CodeNotFound, nil)
}

func (*laggingModules) GetModule(context.Context, *connect.Request[modulev1.GetModuleRequest]) (*connect.Response[modulev1.GetModuleResponse], error) {
	return connect.NewResponse(&modulev1.GetModuleResponse{Module: &modulev1.Module{Digest: "old", Activations: []*modulev1.Activation{{EntityType: "a", Revision: 3}}}}), nil
}

func (m *laggingModules) GetActivationHistory(context.Context, *connect.Request[modulev1.GetActivationHistoryRequest]) (*connect.Response[modulev1.GetActivationHistoryResponse], error) {
	return connect.NewResponse(&modulev1.GetActivationHistoryResponse{Changes: m.changes}), nil
}

// TestAwaitActivationOnLaggingNode checks that an activation that has taken effect
// is not reported as aborted because the node that answers still serves the
// previous module.
func TestAwaitActivationOnLaggingNode(t *testing.T) {
	const activate, canary, abort = modulev1.ActivationChange_KIND_ACTIVATE, modulev1.ActivationChange_KIND_CANARY, modulev1.ActivationChange_KIND_ABORT
	first := &modulev1.ActivationChange{Revision: 3, Kind: activate, Digest: "old"}
	for _, tt := range []struct {
		name    string
		changes []*modulev1.ActivationChange // newest first
		want    uint64                       // revision of the activation; 0 if there was none
	}{
		{"activated", []*modulev1.ActivationChange{{Revision: 5, Kind: activate, Digest: "new"}, first}, 5},
		{"activated, and another serves a part", []*modulev1.ActivationChange{{Revision: 6, Kind: canary, Digest: "other"}, {Revision: 5, Kind: activate, Digest: "new"}, first}, 5},
		{"aborted", []*modulev1.ActivationChange{{Revision: 4, Kind: abort, Digest: "new"}, first}, 0},
		{"replaced since", []*modulev1.ActivationChange{{Revision: 7, Kind: activate, Digest: "other"}, {Revision: 5, Kind: activate, Digest: "new"}, first}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.Handle(modulev1connect.NewModuleServiceHandler(&laggingModules{changes: tt.changes}))
			server := httptest.NewUnstartedServer(mux)
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetHTTP1(true)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Start()
			defer server.Close()
			c, err := client.New([]string{server.Listener.Addr().String()}, client.Options{GivenOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			revision, err := client.AwaitActivation(t.Context(), c, "a", "new")
			if tt.want > 0 && (err != nil || revision != tt.want) {
				t.Errorf("revision %d, %v", revision, err)
			}
			if tt.want == 0 && (client.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "was not activated")) {
				t.Errorf("revision %d, %v", revision, err)
			}
		})
	}
}
