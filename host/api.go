package host

import (
	"github.com/hostd/hostd/host/backup"
	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/moduleapi"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/services"
)

// apiParts has the parts of the node with which it implements the services of
// its API. The server starts before the parts exist, and until open is called it
// accepts no calls that need them, except Initialize.
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
	m.Shards = &a.entity
	a.module.Open(m)
	a.backups.Backups = b
}

// services returns the options of the services, with f for Initialize.
func (a *apiParts) services(f clusterapi.Bootstrapper) services.Options {
	out := services.Options{Entity: a.entity.Options(), Runs: a.entity.Runs(), Module: a.module.Options(), Cluster: a.cluster.Options(f), Backups: &a.backups, Nodes: a.cluster.Nodes()}
	out.Cluster.Lines, out.Cluster.Guests = &a.lines, a.module.Sampler()
	return out
}
