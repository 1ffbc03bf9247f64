package clusterapi

import (
	"context"
	"log/slog"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// Levels raises the cluster version; any node can be asked.
type Levels interface {
	// RaiseLevel raises the cluster version to level, or to the highest that
	// this node supports if level is 0. A dry run changes nothing. It fails with
	// a *status.RefusedError and raises nothing if a member does not support the
	// version, does not answer, or cannot be reached at an address that the
	// version requires; the report is returned with the error.
	RaiseLevel(ctx context.Context, version sharding.ClusterVersion, dryRun bool) (LevelReport, error)
}

// LevelReport has the cluster version and the versions that its members support.
type LevelReport struct {
	Level  sharding.ClusterVersion // the current version
	Wanted sharding.ClusterVersion
	Nodes  []NodeLevels // by name
}

// NodeLevels has the cluster versions that a member supports.
type NodeLevels struct {
	Node    sharding.NodeID
	Version string // its release; empty if it is not known
	Speaks  sharding.VersionRange
	// Obstacle says why the node prevents the cluster version from being raised;
	// empty if it does not.
	Obstacle string
}

// levelService implements RaiseLevel.
type levelService struct {
	levels Levels
	log    *slog.Logger
}

// RaiseLevel raises the cluster version.
func (s *levelService) RaiseLevel(ctx context.Context, req *connect.Request[clusterv1.RaiseLevelRequest]) (*connect.Response[clusterv1.RaiseLevelResponse], error) {
	r, err := s.levels.RaiseLevel(ctx, sharding.ClusterVersion(req.Msg.GetLevel()), req.Msg.GetDryRun())
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	out := &clusterv1.RaiseLevelResponse{Level: uint32(r.Level), Wanted: uint32(r.Wanted)}
	for _, n := range r.Nodes {
		out.Nodes = append(out.Nodes, &clusterv1.NodeLevels{
			NodeId: string(n.Node), Version: n.Version, MinLevel: uint32(n.Speaks.Min), MaxLevel: uint32(n.Speaks.Max), Obstacle: n.Obstacle,
		})
	}
	return connect.NewResponse(out), nil
}
