package host

import (
	"github.com/hostd/hostd/host/backup"
	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/moduleapi"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/services"
)

// apiParts holds the parts of the node that implement the services of its API.
// The server starts before these parts exist. Until open is called, it rejects
// the calls that need them, which are all calls except InitializeCluster.
type apiParts struct {
	cluster clusterapi.Parts
	entity  entityapi.Parts
	module  moduleapi.Parts
	backups struct{ backup.Backups }
	lines   modules.GuestLines // log lines of the node's guests
}

// open sets the parts.
func (a *apiParts) open(c clusterapi.Parts, e entityapi.Parts, m moduleapi.Parts, b backup.Backups) {
	a.cluster.Open(c)
	a.entity.Open(e)
	a.module.Open(m)
	a.backups.Backups = b
}

// services returns the options for the services of the API. f handles
// InitializeCluster.
func (a *apiParts) services(f clusterapi.Bootstrapper) services.Options {
	out := services.Options{Entity: a.entity.Options(), Runs: a.entity.Runs(), Module: a.module.Options(), Cluster: a.cluster.Options(f), Backups: &a.backups, Nodes: a.cluster.Nodes()}
	out.Cluster.Lines, out.Cluster.Guests = &a.lines, a.module.Sampler()
	return out
}
