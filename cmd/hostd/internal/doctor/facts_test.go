package doctor

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// hung answers for the cluster, and then never again.
type hung struct {
	clusterv1connect.UnimplementedClusterServiceHandler
	modulev1connect.UnimplementedModuleServiceHandler
	members []*clusterv1.Member
}

func (h *hung) GetCluster(context.Context, *connect.Request[clusterv1.GetClusterRequest]) (*connect.Response[clusterv1.GetClusterResponse], error) {
	return connect.NewResponse(&clusterv1.GetClusterResponse{Quorum: true, Members: h.members}), nil
}

func (h *hung) ListShards(ctx context.Context, _ *connect.Request[clusterv1.ListShardsRequest]) (*connect.Response[clusterv1.ListShardsResponse], error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (h *hung) ListModules(ctx context.Context, _ *connect.Request[modulev1.ListModulesRequest]) (*connect.Response[modulev1.ListModulesResponse], error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestHungCallsLeaveTimeForOtherChecks lets a node answer for the cluster and
// for itself, but never for its shards and modules. These are listed as not
// checked, and the time they took is not taken from the checks of nodes.
func TestHungCallsLeaveTimeForOtherChecks(t *testing.T) {
	h := &hung{}
	mux := http.NewServeMux()
	mux.Handle(clusterv1connect.NewClusterServiceHandler(h))
	mux.Handle(modulev1connect.NewModuleServiceHandler(h))
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not yet", http.StatusServiceUnavailable) })
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	h.members = []*clusterv1.Member{{NodeId: "n1", Address: strings.TrimPrefix(server.URL, "http://")}}

	remote := &cli.Remote{Addr: server.URL, Timeout: 10 * time.Second}
	ctx, cancel := context.WithTimeout(t.Context(), remote.Timeout)
	defer cancel()
	s, err := remote.Open(ctx, cli.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f, err := gather(ctx, s, remote.Timeout, bases(remote), remote.HTTPClient())
	if err != nil {
		t.Fatal(err)
	}
	if n := f.Nodes[0]; n.Err != nil || n.NotReady != "not yet" {
		t.Errorf("the node was not asked: %+v", n)
	}
	var gaps []string
	for _, g := range f.Gaps {
		gaps = append(gaps, g.What)
	}
	if got := strings.Join(gaps, ", "); got != "entity types, shards, metrics of n1" {
		t.Errorf("not checked: %s", got)
	}
}
