package clusterapi

import (
	"context"
	"fmt"
	"log/slog"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/status"
)

// Initializer has this node found its cluster.
type Initializer interface {
	// Initialize orders it, unless the node belongs to a cluster, and says how
	// far it is. It returns at once; the order holds until the node stops. It is
	// a *RefusedError where the node may not found one.
	Initialize() (Founding, error)
}

// Founding is how far a node has come on its way into a cluster.
type Founding struct {
	Cluster string   // empty while it belongs to none
	Founded bool     // by the node, since it started
	Silent  []string // seeds that did not answer last
	Waits   string   // for what the node waits
}

// initService answers Initialize.
type initService struct {
	founder Initializer
	log     *slog.Logger
}

// Initialize has the node found its cluster.
func (s *initService) Initialize(ctx context.Context, _ *connect.Request[clusterv1.InitializeRequest]) (*connect.Response[clusterv1.InitializeResponse], error) {
	looks := 0
	var now Founding
	err := await(ctx, func() (_ string, err error) {
		looks++
		if now, err = s.founder.Initialize(); err != nil || now.Cluster != "" {
			return "", err
		}
		return fmt.Sprintf("there is no cluster yet, and the order stands until the node stops; a majority of the node and its seeds has to answer, and none may belong to a cluster: %s", nameOr(now.Waits, "it asks its seeds")), nil
	})
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	out := &clusterv1.InitializeResponse{ClusterId: now.Cluster}
	if looks > 1 && now.Founded {
		out.Founded, out.SilentSeeds = true, now.Silent
	}
	return connect.NewResponse(out), nil
}
