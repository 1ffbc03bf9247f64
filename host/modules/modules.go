package modules

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/signing"
	"github.com/hostd/hostd/sharding"
)

// Options configure Modules. All are required.
type Options struct {
	Self     sharding.NodeID
	Shards   uint32 // data shards
	Engine   *guest.Engine
	Files    *guest.Registry // of this node
	Metadata *cluster.Metadata
	Peers    *peer.Peers
	Others   func() []sharding.NodeID // the other members that are up and alive
	ReadOnly func() bool              // the disk is full: nothing is copied
	CaughtUp func() bool              // with the metadata that the cluster had at the start
	Trust    *signing.Trust           // the signatures that this node trusts
	Lines    *GuestLines              // receives what guests write
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
	m := &Modules{Settings: newSettings(), Keys: newShardKeys(o.Shards, o.Metadata.View)}
	m.Distribution = &Distribution{
		self: o.Self, view: o.Metadata.View, others: o.Others, peers: o.Peers, files: o.Files, trust: o.Trust, catchUp: o.Metadata.CatchUp, full: o.ReadOnly, now: time.Now, logger: o.Logger,
	}
	m.Types = newTypes(o.Metadata, m.Keys, m.Settings, m.Distribution, o.Engine.Limits(), o.Lines, o.Logger)
	m.Service = &Service{
		engine: o.Engine, files: o.Files, modules: m.Distribution, types: m.Types, metadata: o.Metadata,
		readOnly: o.ReadOnly, caughtUp: o.CaughtUp,
	}
	m.Rollouts = &Rollouts{Service: m.Service, now: time.Now, late: map[string]retry{}, watched: map[string]time.Time{}, held: map[string]pausedSince{}}
	m.verifying = &verifications{Service: m.Service, rollouts: m.Rollouts, nodes: m.Distribution, now: time.Now, late: map[string]retry{}, tries: map[string]int{}}
	return m
}

// SetLook sets how entities are checked in all shards. It must be called before
// Run.
func (m *Modules) SetLook(look Look) { m.Service.look = look }

// OnChange sets callbacks: types is called when newer bindings are served, and
// settings when settings of types have changed. It must be called before Run.
func (m *Modules) OnChange(types, settings func()) {
	m.Types.onChange, m.Settings.onChange = types, settings
}

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
