package clusterapi

import (
	"context"
	"log/slog"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// UpgradeFinalizer raises the cluster version, on any node.
type UpgradeFinalizer interface {
	// FinalizeUpgrade raises the cluster version to version, or to the highest
	// that this node supports if version is 0. A dry run changes nothing. It
	// fails with a *status.RefusedError and raises nothing if a member does not
	// support the version, does not answer, or cannot be reached at an
	// address that the version requires. It then returns the report with the
	// error.
	FinalizeUpgrade(ctx context.Context, version sharding.ClusterVersion, dryRun bool) (UpgradeReport, error)
}

// UpgradeReport lists the cluster version and the versions that the members
// support.
type UpgradeReport struct {
	Version sharding.ClusterVersion // the current version
	Target  sharding.ClusterVersion
	Nodes   []NodeVersions // ordered by name
}

// NodeVersions lists the cluster versions that a member supports.
type NodeVersions struct {
	Node      sharding.NodeID
	Release   string // release of the node; empty if not known
	Supported sharding.VersionRange
	// Obstacle says why the node prevents the upgrade; it is empty if the
	// node does not prevent the upgrade.
	Obstacle string
}

// upgradeService implements FinalizeUpgrade.
type upgradeService struct {
	finalizer UpgradeFinalizer
	log       *slog.Logger
}

// FinalizeUpgrade raises the cluster version.
func (s *upgradeService) FinalizeUpgrade(ctx context.Context, req *connect.Request[clusterv1.FinalizeUpgradeRequest]) (*connect.Response[clusterv1.FinalizeUpgradeResponse], error) {
	r, err := s.finalizer.FinalizeUpgrade(ctx, sharding.ClusterVersion(req.Msg.GetClusterVersion()), req.Msg.GetDryRun())
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	out := &clusterv1.FinalizeUpgradeResponse{ClusterVersion: uint32(r.Version), TargetClusterVersion: uint32(r.Target)}
	for _, n := range r.Nodes {
		out.Nodes = append(out.Nodes, &clusterv1.NodeVersions{
			NodeId: string(n.Node), Version: n.Release, MinClusterVersion: uint32(n.Supported.Min), MaxClusterVersion: uint32(n.Supported.Max), Obstacle: n.Obstacle,
		})
	}
	return connect.NewResponse(out), nil
}
