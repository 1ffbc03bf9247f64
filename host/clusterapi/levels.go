package clusterapi

import (
	"context"
	"log/slog"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// Levels raises the level of the cluster, from whichever node is asked.
type Levels interface {
	// RaiseLevel raises it to level, or to the highest that this node speaks
	// where that is 0. A dry run changes nothing. It is a *RefusedError, and
	// nothing is raised, where a member does not speak the level, does not
	// answer, or is not reached where the level has nodes served; the report
	// comes with the error.
	RaiseLevel(ctx context.Context, level sharding.ClusterVersion, dryRun bool) (LevelReport, error)
}

// LevelReport is the level of the cluster and what its members speak.
type LevelReport struct {
	Level  sharding.ClusterVersion // now
	Wanted sharding.ClusterVersion
	Nodes  []NodeLevels // by name
}

// NodeLevels is what a member speaks.
type NodeLevels struct {
	Node    sharding.NodeID
	Version string // its release, empty where it is not known
	Speaks  sharding.VersionRange
	// Obstacle says why the level cannot be raised because of the node; empty
	// where it can.
	Obstacle string
}

// levelService answers RaiseLevel.
type levelService struct {
	levels Levels
	log    *slog.Logger
}

// RaiseLevel raises the level of the cluster.
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
