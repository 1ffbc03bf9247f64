package clusterapi

import (
	"sync/atomic"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
)

// Bootstrapper bootstraps a cluster from a node that has none.
type Bootstrapper struct {
	Control         *cluster.Control
	Bootstrap       *cluster.Bootstrap // nil if the node belonged to a cluster when it started
	HasBootstrapped *atomic.Bool       // the node has bootstrapped since it started
	Lifecycle       interface{ Stopping() bool }
	Proxy           bool
}

// Initialize implements Initializer.
func (f Bootstrapper) Initialize() (BootstrapProgress, error) {
	out := BootstrapProgress{Cluster: f.Control.Cluster(), Bootstrapped: f.HasBootstrapped.Load()}
	switch {
	case f.Bootstrap == nil: // the node belongs to a cluster
	case out.Cluster != "":
		out.Unanswered = f.Bootstrap.Stage().Unanswered
	case f.Lifecycle.Stopping():
		return out, request.ErrNotReady
	case f.Proxy:
		return out, &status.RefusedError{Reason: "this node is a proxy, which holds no shards and cannot bootstrap a cluster: call a node that holds shards"}
	default:
		f.Bootstrap.Order()
		stage := f.Bootstrap.Stage()
		out.Waits, out.Unanswered = stage.Waits, stage.Unanswered
	}
	return out, nil
}
