package edge_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/status"
)

// served is a node that a server serves. A node without a cluster accepts only
// the call that bootstraps one. If the deadline of that call passes first, its
// error says what the bootstrap waits for.
type served struct {
	opened error
	ready  *atomic.Pointer[error]
	at     *atomic.Pointer[string]
}

func (n served) Opened() error   { return n.opened }
func (n served) Remarks() string { return "" }
func (n served) Cluster() string { return "" }

func (n served) Ready() error {
	if n.ready == nil || n.ready.Load() == nil {
		return nil
	}
	return *n.ready.Load()
}

func (n served) PeersAt() string {
	if n.at == nil || n.at.Load() == nil {
		return ""
	}
	return *n.at.Load()
}

func TestInitialize(t *testing.T) {
	s := serve(t, edge.Options{Admin: true, Node: served{opened: errors.New("no cluster")}})
	s.world.Nodes.Found(clusterapi.BootstrapProgress{Waits: "seeds are silent", Unanswered: []string{"b:1"}})
	_, said := s.post(t, clusterPath+"InitializeCluster", `{}`, "Connect-Timeout-Ms", "600")
	wantCode(t, said, connect.CodeDeadlineExceeded)
	if !strings.Contains(said, "seeds are silent") {
		t.Errorf("what the node waits for is missing: %s", said)
	}
	for _, call := range []string{"GetCluster", "FinalizeUpgrade"} {
		_, said := s.post(t, clusterPath+call, `{}`)
		wantCode(t, said, connect.CodeUnavailable)
	}
	answer := make(chan string)
	before := s.world.Nodes.Found(clusterapi.BootstrapProgress{})
	go func() {
		_, said := s.post(t, clusterPath+"InitializeCluster", `{}`)
		answer <- said
	}()
	eventually(t, "the node to be told", func() bool { return s.world.Nodes.Found(clusterapi.BootstrapProgress{}) > before })
	s.world.Nodes.Found(clusterapi.BootstrapProgress{Cluster: "c7", Bootstrapped: true, Unanswered: []string{"b:1"}})
	wantJSON(t, <-answer, `{"clusterId":"c7","bootstrapped":true,"unreachableSeeds":["b:1"]}`)
	_, said = s.post(t, clusterPath+"InitializeCluster", `{}`)
	wantJSON(t, said, `{"clusterId":"c7"}`)
	s.world.Nodes.Fail(&status.RefusedError{Reason: "a proxy"})
	_, said = s.post(t, clusterPath+"InitializeCluster", `{}`)
	wantCode(t, said, connect.CodeFailedPrecondition)
}

// A caller that may not change a cluster may not bootstrap one either.
func TestInitializeNeedsAdmin(t *testing.T) {
	s := serve(t, edge.Options{Node: served{opened: errors.New("no cluster")}})
	_, said := s.post(t, clusterPath+"InitializeCluster", `{}`)
	wantCode(t, said, connect.CodePermissionDenied)
	if s.world.Nodes.Found(clusterapi.BootstrapProgress{}) > 0 {
		t.Error("the order was passed on")
	}
}
