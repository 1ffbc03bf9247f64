package modules

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/signing"
	"github.com/hostd/hostd/sharding"
)

// members lists the members of the cluster.
type members interface {
	// Others returns the other members that are up and alive.
	Others() []sharding.NodeID
}

// disk watches the disk of the node's data directory.
type disk interface {
	// ReadOnly reports whether the disk is full. Then nothing is copied to it.
	ReadOnly() bool
}

// executors use the active modules and the settings. No method may block.
type executors interface {
	// ActivationsChanged is called when newer activations are served.
	ActivationsChanged()
	// IdleTimesChanged is called when settings of types have changed.
	IdleTimesChanged()
}

// shardsChecker checks the entities of all shards.
type shardsChecker interface {
	// Touched checks all shards for entities that modules other than
	// q.ExcludeWrittenBy have written and that the module cannot read.
	Touched(ctx context.Context, q CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error)
}

// Options configure Modules. All are required.
type Options struct {
	Self     sharding.NodeID
	Shards   uint32 // number of data shards
	Engine   *guest.Engine
	Files    *guest.Registry // modules on this node
	Metadata *cluster.Metadata
	Peers    *peer.Peers
	Members  members
	Disk     disk
	CaughtUp *atomic.Bool   // the metadata has caught up with the state that the cluster had when this node started
	Trust    *signing.Trust // the signatures that this node trusts
	Lines    *GuestLines    // receives the lines that guests write
	Logger   *slog.Logger
}

// Modules are the parts of a node that manage modules.
type Modules struct {
	Service      *Service
	Rollouts     *Rollouts
	verifying    *verifications
	Distribution *Distribution
	Types        *Types
	Settings     *Settings
	Keys         *ShardKeys
}

// New creates the parts. The caller keeps the ownership of the options and
// closes them after Run has returned.
func New(o Options) *Modules {
	m := &Modules{Settings: newSettings(), Keys: newShardKeys(o.Shards, o.Metadata)}
	m.Distribution = &Distribution{
		self: o.Self, metadata: o.Metadata, members: o.Members, peers: o.Peers, files: o.Files, trust: o.Trust, disk: o.Disk, now: time.Now, logger: o.Logger,
	}
	m.Types = newTypes(o.Metadata, m.Keys, m.Settings, m.Distribution, o.Engine.Limits(), o.Lines, o.Logger)
	m.Service = &Service{
		engine: o.Engine, files: o.Files, modules: m.Distribution, types: m.Types, metadata: o.Metadata,
		disk: o.Disk, caughtUp: o.CaughtUp,
	}
	m.Rollouts = &Rollouts{Service: m.Service, now: time.Now, late: map[string]retry{}, watched: map[string]time.Time{}, held: map[string]pausedSince{}}
	m.verifying = &verifications{Service: m.Service, rollouts: m.Rollouts, nodes: m.Distribution, now: time.Now, late: map[string]retry{}, tries: map[string]int{}}
	return m
}

// SetShards sets the checker of the entities in all shards. It must be called
// before Run.
func (m *Modules) SetShards(s shardsChecker) { m.Service.shards = s }

// SetExecutors sets the executors, which are notified of changes. It must be
// called before Run.
func (m *Modules) SetExecutors(e executors) { m.Types.executors, m.Settings.executors = e, e }

// Run keeps types and settings in sync with the metadata, copies missing
// modules to this node and drives rollouts, until ctx ends.
func (m *Modules) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { m.Types.run(ctx) })
	running.Go(func() { m.Settings.run(ctx, m.Types.metadata) })
	running.Go(func() { m.Distribution.run(ctx) })
	running.Go(func() { m.Rollouts.run(ctx) })
	running.Go(func() { m.verifying.run(ctx) })
	running.Wait()
}
