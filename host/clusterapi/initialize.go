package clusterapi

import (
	"context"
	"fmt"
	"log/slog"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/status"
)

// Initializer bootstraps the cluster of this node.
type Initializer interface {
	// Initialize starts the bootstrap, unless the node belongs to a cluster,
	// and returns its progress. It does not block. The node then tries to
	// bootstrap until it succeeds or stops. It fails with a
	// *status.RefusedError if the node may not bootstrap a cluster.
	Initialize() (BootstrapProgress, error)
}

// BootstrapProgress is the progress of a node's bootstrap.
type BootstrapProgress struct {
	Cluster      string   // empty if the node belongs to no cluster
	Bootstrapped bool     // the node has bootstrapped the cluster since it started
	Unanswered   []string // seeds that did not answer when they were last asked
	Waits        string   // describes what the node waits for
}

// initService implements InitializeCluster.
type initService struct {
	bootstrapper Initializer
	log          *slog.Logger
}

// InitializeCluster makes the node bootstrap its cluster.
func (s *initService) InitializeCluster(ctx context.Context, _ *connect.Request[clusterv1.InitializeClusterRequest]) (*connect.Response[clusterv1.InitializeClusterResponse], error) {
	looks := 0
	var now BootstrapProgress
	err := await(ctx, func() (_ string, err error) {
		looks++
		if now, err = s.bootstrapper.Initialize(); err != nil || now.Cluster != "" {
			return "", err
		}
		return fmt.Sprintf("there is no cluster yet, and the node keeps trying until it stops; a majority of the node and its seeds must answer, and none may belong to a cluster: %s", nameOr(now.Waits, "it is asking its seeds")), nil
	})
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	out := &clusterv1.InitializeClusterResponse{ClusterId: now.Cluster}
	if looks > 1 && now.Bootstrapped {
		out.Bootstrapped, out.UnreachableSeeds = true, now.Unanswered
	}
	return connect.NewResponse(out), nil
}
