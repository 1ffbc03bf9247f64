package backend

import (
	"context"
	"net/http"

	"github.com/hostd/hostd/host/backup"
	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/host/rpc/rollout"
	"github.com/hostd/hostd/sharding"
)

// Parts are the parts of the node that answer calls. All are required.
type Parts struct {
	Cluster clusterapi.Parts
	Entity  entityapi.Parts
	Modules *modules.Modules
	Replays *replay.Replays
	Backups *backup.Service
}

// Backend connects the API server to the parts of the node. The server starts
// before the parts exist, and accepts no calls for them until Open is called.
type Backend struct {
	parts   Parts
	cluster clusterapi.Parts // those of parts
	entity  entityapi.Parts  // likewise
	lines   modules.GuestLines
	late    struct {
		types     struct{ rpc.Types }
		modules   struct{ rpc.Modules }
		transfers struct{ rpc.Transfers }
		rollouts  struct{ rollout.Rollouts }
	}
}

// Lines returns the log lines of the node's guests.
func (b *Backend) Lines() *modules.GuestLines { return &b.lines }

// Open sets the parts. Before it, the backend may receive no calls except those
// of the bootstrap.
func (b *Backend) Open(p Parts) {
	b.cluster.Open(p.Cluster)
	b.entity.Open(p.Entity)
	b.parts = p
	b.late.types.Types, b.late.modules.Modules, b.late.transfers.Transfers = p.Modules.Service, p.Modules.Service, p.Backups
	b.late.rollouts.Rollouts = p.Modules.Rollouts
}

// Deps returns the server's dependencies.
func (b *Backend) Deps(f clusterapi.Bootstrapper) rpc.Deps {
	p := &b.parts
	return rpc.Deps{
		Types: &b.late.types, Entity: b.entity.Options(), Cluster: b.cluster.Options(f),
		Modules: &b.late.modules, Rollouts: &b.late.rollouts, Transfers: &b.late.transfers,
		Verifications: verifications{p}, Fits: fits{p, &b.entity, newCatalogues()}, Nodes: nodes{p}, Lines: &b.lines, Guests: profiles{p},
	}
}

// verifications implements verification.Verifications.
type verifications struct{ *Parts }

func (v verifications) Verify(ctx context.Context, q replay.VerifyRequest, tell func(replay.Verified) error) error {
	return v.Replays.Verify(ctx, q, tell)
}

// nodes implements leaderproxy.Nodes: it finds the leaders of shards and calls them.
type nodes struct{ *Parts }

func (s nodes) Leader(shard sharding.ShardID) (node sharding.NodeID, self, known bool) {
	return s.Cluster.Leaders.Leader(shard)
}
func (s nodes) Quorum(shard sharding.ShardID) bool { return s.Cluster.Leaders.Quorum(shard) }
func (s nodes) Missing(shard sharding.ShardID) sharding.Missing {
	return s.Cluster.Leaders.Missing(shard)
}
func (s nodes) Hears(node sharding.NodeID) bool { return s.Cluster.Peers.IsAlive(node) }
func (s nodes) Changed() <-chan struct{}        { return s.Cluster.Leaders.Changed() }
func (s nodes) Client(node sharding.NodeID) (client *http.Client, baseURL string, err error) {
	return s.Cluster.Peers.Client(node)
}
