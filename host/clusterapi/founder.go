package clusterapi

import (
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
)

// Founder has a node without a cluster found one.
type Founder struct {
	Control  *cluster.Control
	Founding *cluster.Founding // nil for a node that belonged to a cluster at its start
	Founded  func() bool       // in this start
	Stopping func() bool
	Proxy    bool
}

// Initialize implements Initializer.
func (f Founder) Initialize() (Founding, error) {
	out := Founding{Cluster: f.Control.Cluster(), Founded: f.Founded()}
	switch {
	case f.Founding == nil: // it belongs to one
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
