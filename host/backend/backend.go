package backend

import (
	"context"
	"log/slog"
	"net/http"
	goruntime "runtime"
	"time"

	"github.com/hostd/hostd/host/backup"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/host/rpc/rollout"
	"github.com/hostd/hostd/host/rpc/subscription"
	"github.com/hostd/hostd/host/rpc/watchstats"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Parts are what calls are answered from. All are required.
type Parts struct {
	Self       sharding.NodeID
	ClusterID  string
	ShardCount uint32             // of data shards
	Policy     meta.Policy        // by the node's own flags
	Describe   func() meta.Member // this node as a member
	SaveLevel  func(sharding.ClusterVersion) error
	Now        func() time.Time // the wall clock; nil is time.Now
	CaughtUp   func() bool      // with the metadata that the cluster had at the start
	Measure    func() *watchstats.Sample

	Metadata *cluster.Metadata
	Member   *cluster.Member
	Control  *cluster.Control
	Peers    *peer.Peers
	Leaders  *cluster.Leaders
	Raft     *raftgroup.Loop
	Machine  *eventlog.Machine
	Judge    *cluster.ConsistencyChecker
	Region   *entity.ShardRouter
	Router   *router.Router
	Modules  *modules.Modules
	Replays  *replay.Replays
	Upcasts  *replay.Upcasts
	Part     *backup.Part
	Backups  *backup.Service
	Logger   *slog.Logger

	scans chan struct{} // a place for each scan that is under way; nil: no bound
}

// scan waits for a place to read through what a shard has, and returns how to
// give it back. A call may look at 20,000 rows of each of 4,096 shards. As many
// calls as callers like would share the processors with the executors, each of
// which would wait for all of them; so no more read at a time than half
// the processors can: with one on every processor, each of the goroutines that a
// command passes would wait out a time slice of one. Nothing that waits for another node or for a client has a place.
func (p *Parts) scan(ctx context.Context) (leave func(), err error) {
	if p.scans == nil {
		return func() {}, nil
	}
	select {
	case p.scans <- struct{}{}:
		return func() { <-p.scans }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Backend gives the server what it stands on. The server begins before the parts
// are there, and takes no calls for them until the node has opened.
type Backend struct {
	parts Parts
	lines modules.GuestLines
	late  struct {
		types     struct{ rpc.Types }
		modules   struct{ rpc.Modules }
		transfers struct{ rpc.Transfers }
		rollouts  struct{ rollout.Rollouts }
	}
}

// Lines keep what the node's guests write.
func (b *Backend) Lines() *modules.GuestLines { return &b.lines }

// Open gives the backend its parts. No call but those of the founder may have
// come before.
func (b *Backend) Open(p Parts) {
	if p.Now == nil {
		p.Now = time.Now
	}
	p.scans = make(chan struct{}, max(1, goruntime.GOMAXPROCS(0)/2))
	b.parts = p
	b.late.types.Types, b.late.modules.Modules, b.late.transfers.Transfers = p.Modules.Service, p.Modules.Service, p.Backups
	b.late.rollouts.Rollouts = p.Modules.Rollouts
}

// Deps are the parts as the server sees them.
func (b *Backend) Deps(f Founder) rpc.Deps {
	p := &b.parts
	return rpc.Deps{
		Runtime: runtime{p}, Types: &b.late.types, Histories: histories{p}, Records: histories{p}, Pending: pendingView{p}, Entities: entities{p}, Load: load{p}, States: states{p},
		Modules: &b.late.modules, Rollouts: &b.late.rollouts, Transfers: &b.late.transfers, Cluster: clusterView{p}, ClusterAdmin: clusterAdmin{p}, Levels: levels{p},
		Policies: policies{p}, Settings: settings{p}, Roles: roles{p}, DeadLetters: deadLetters{p}, Readers: subscription.Readers{EventOrder: eventOrder{p}, Upcasts: upcasts{p}}, Verifications: verifications{p}, Fits: fits{p, newCatalogues()}, Nodes: nodes{p}, Lines: &b.lines, ProfileGuests: profiles{p}.Take, Founder: f,
	}
}

// runtime implements command.Runtime.
type runtime struct{ *Parts }

func (r runtime) Submit(reqs []*request.Request) { r.Router.Submit(reqs) }

// upcasts implements subscription.Upcasts.
type upcasts struct{ *Parts }

func (u upcasts) Check(ctx context.Context, entityType string) error {
	return u.Upcasts.Check(ctx, entityType)
}

func (u upcasts) Upcast(ctx context.Context, id sharding.EntityID, at journal.Sequence, recordedAt int64, e *journal.Event) (string, []byte, error) {
	return u.Upcasts.Upcast(ctx, id, at, recordedAt, e)
}

// verifications implements verification.Verifications.
type verifications struct{ *Parts }

func (v verifications) Verify(ctx context.Context, q replay.VerifyRequest, tell func(replay.Verified) error) error {
	return v.Replays.Verify(ctx, q, tell)
}

// nodes implements leaderproxy.Nodes: it finds the leaders of shards and calls them.
type nodes struct{ *Parts }

func (s nodes) Leader(shard sharding.ShardID) (node sharding.NodeID, self, known bool) {
	return s.Leaders.Leader(shard)
}
func (s nodes) Quorum(shard sharding.ShardID) bool { return s.Leaders.Quorum(shard) }
func (s nodes) Missing(shard sharding.ShardID) sharding.Missing {
	return s.Leaders.Missing(shard)
}
func (s nodes) Hears(node sharding.NodeID) bool { return s.Peers.Heard(node) }
func (s nodes) Changed() <-chan struct{}        { return s.Leaders.Changed() }
func (s nodes) Client(node sharding.NodeID) (client *http.Client, baseURL string, err error) {
	return s.Peers.Client(node)
}
