package clusterapi

import (
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
)

// Founder bootstraps a cluster from a node that has none.
type Founder struct {
	Control  *cluster.Control
	Founding *cluster.Founding // nil if the node belonged to a cluster when it started
	Founded  func() bool       // the node has bootstrapped since it started
	Stopping func() bool
	Proxy    bool
}

// Initialize implements Initializer.
func (f Founder) Initialize() (Founding, error) {
	out := Founding{Cluster: f.Control.Cluster(), Founded: f.Founded()}
	switch {
	case f.Founding == nil: // it belongs to a cluster
	case out.Cluster != "":
		out.Silent = f.Founding.Stage().Silent
	case f.Stopping():
		return out, request.ErrNotReady
	case f.Proxy:
		return out, &status.RefusedError{Reason: "this node is a proxy, which holds nothing and founds no cluster: ask one that holds shards"}
	default:
		f.Founding.Order()
		stage := f.Founding.Stage()
		out.Waits, out.Silent = stage.Waits, stage.Silent
	}
	return out, nil
}
