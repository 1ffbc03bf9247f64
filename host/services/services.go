// Package services composes the API of a node: it gives each service what the
// services share with each other and with the edge, and mounts them. It makes no
// decisions and starts no goroutine.
package services

import (
	"context"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	journalv1 "github.com/hostd/hostd/api/gen/hostd/journal/v1"
	"github.com/hostd/hostd/api/gen/hostd/journal/v1/journalv1connect"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	workflowv1 "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
	"github.com/hostd/hostd/api/gen/hostd/workflow/v1/workflowv1connect"
	"github.com/hostd/hostd/host/audit"
	"github.com/hostd/hostd/host/backup"
	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/entityapi/subscription"
	"github.com/hostd/hostd/host/moduleapi"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/procedure"
	"github.com/hostd/hostd/host/workflowapi"
)

// Options configure the services. NewServer sets the options that the services
// share.
type Options struct {
	Entity entityapi.Options
	// Runs knows the runs of workflows; nil if calls about runs are not served.
	Runs    workflowapi.Runs
	Module  moduleapi.Options
	Cluster clusterapi.Options
	// Backups exports and imports entities; if it is nil, the calls that need
	// it are unimplemented.
	Backups backup.Backups
	// Nodes finds the leaders of shards; nil if this node leads all of them.
	Nodes leaderproxy.Nodes
}

// Server is an edge that has the services of a node mounted.
type Server struct {
	*edge.Server
	modules moduleapi.Handler
}

// NewServer makes the services and a server that serves them. It starts nothing.
func NewServer(o Options, opts edge.Options) *Server {
	server := edge.New(opts)
	shared := server.Shared()
	opts = shared.Options
	types := moduleapi.NearTypes{Types: o.Module.Types, Auth: opts.Roles}
	known := moduleapi.Encodings{Types: types}
	proxy := leaderproxy.New(o.Nodes)

	e := o.Entity
	e.Types, e.View, e.Self, e.Admin, e.Proxy = known, o.Cluster.View, opts.NodeID, opts.Admin, proxy
	e.Streams, e.Waiting, e.Arrivals, e.Deadline = shared.Streams, shared.Waiting, shared.Arrivals, shared.Deadlines
	e.Auth, e.Quotas, e.Log, e.Registerer, e.MaxInFlight, e.MaxBytes = opts.Roles, opts.Quotas, opts.Logger, opts.Registerer, opts.MaxStreamInFlight, int64(opts.MaxStreamBytes)
	entities := entityapi.NewHandler(e)

	runs := workflowapi.NewHandler(workflowapi.Options{
		Entities: entities, Runs: o.Runs, Shards: e.Entities, Types: known, Proxy: proxy, Streams: shared.Streams, Quotas: opts.Quotas, Auth: opts.Roles, Log: opts.Logger,
	})

	m := o.Module
	m.Types, m.Entities, m.Timers, m.Proxy = types, e.Entities, entities, proxy
	m.Streams, m.Uploads, m.Auth, m.Log = shared.Streams, shared.Uploads, opts.Roles, opts.Logger
	activations := moduleapi.NewHandler(m)

	c := o.Cluster
	c.Owners, c.Types, c.Self, c.Proxy = activations.Owners(), known, opts.NodeID, proxy
	c.Streams, c.Auth, c.Callers, c.Log = shared.Streams, opts.Roles, opts.Auth, opts.Logger

	server.Mount(edge.API{
		Services: []edge.Service{
			{
				Descriptor: entityv1.File_hostd_entity_v1_entity_proto.Services().Get(0), Handler: edge.NewMount[entityv1connect.EntityServiceHandler](entityv1connect.NewEntityServiceHandler, entities),
				Streams: []edge.Mount{entities.SendStreamHandler},
			},
			{Descriptor: workflowv1.File_hostd_workflow_v1_workflow_proto.Services().Get(0), Handler: edge.NewMount[workflowv1connect.WorkflowServiceHandler](workflowv1connect.NewWorkflowServiceHandler, runs)},
			{Descriptor: modulev1.File_hostd_module_v1_module_proto.Services().Get(0), Handler: edge.NewMount[modulev1connect.ModuleServiceHandler](modulev1connect.NewModuleServiceHandler, activations)},
			{Descriptor: clusterv1.File_hostd_cluster_v1_cluster_proto.Services().Get(0), Handler: edge.NewMount(clusterv1connect.NewClusterServiceHandler, clusterapi.NewHandler(c)), AdminOnly: true},
			{Descriptor: journalv1.File_hostd_journal_v1_journal_proto.Services().Get(0), Handler: edge.NewMount(journalv1connect.NewJournalServiceHandler, backup.NewHandler(o.Backups, shared.Streams, opts.Logger)), AdminOnly: true},
		},
		Types: moduleapi.Encodings{Types: o.Module.Types}, Entities: plainEntities{e.Entities, e.EventOrder},
	})
	return &Server{Server: server, modules: activations}
}

// plainEntities implements plainhttp.Entities.
type plainEntities struct {
	entityapi.Entities
	order subscription.EventOrder // nil if events cannot be read
}

func (p plainEntities) Cluster() string {
	if p.order == nil {
		return ""
	}
	return p.order.Cluster()
}

// Touched checks all shards for entities that modules other than q.ExcludeWrittenBy
// have written and on which the module of q fails.
func (s *Server) Touched(ctx context.Context, q modules.CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
	return s.modules.Touched(ctx, q)
}

// Audited returns the options of the audit log for calls of these services.
func Audited(all, proceed bool) audit.CallOptions {
	return audit.CallOptions{Services: procedure.Services(), All: all, Continue: proceed, Passed: func(ctx context.Context) (string, *principal.Principal) {
		return string(leaderproxy.NodeOf(ctx)), leaderproxy.Caller(ctx)
	}}
}
