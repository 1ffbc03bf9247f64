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

// Options are the parts that Modules work with. All are required.
type Options struct {
	Self     sharding.NodeID
	Shards   uint32 // data shards
	Engine   *guest.Engine
	Files    *guest.Registry // of this node
	Metadata *cluster.Metadata
	Peers    *peer.Peers
	Others   func() []sharding.NodeID // the members that are up and heard, without this node
	ReadOnly func() bool              // the disk is: no copy is made
	CaughtUp func() bool              // with the metadata that the cluster had at the start
	Trust    *signing.Trust           // whose signatures count on this node
	Lines    *GuestLines              // get what guests write
	Logger   *slog.Logger
}

// Modules are what a node has to do with modules, by subject.
type Modules struct {
	Service      *Service
	Rollouts     *Rollouts
	verifying    *verifications
	Distribution *Distribution
	Types        *Types
	Settings     *Settings
	Keys         *ShardKeys
}

// New makes the parts. It takes none of the options over: whoever opened them
// closes them, after Run has returned.
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
	m.Rollouts = &Rollouts{Service: m.Service, now: time.Now, late: map[string]retry{}, watched: map[string]time.Time{}, held: map[string]heldSince{}}
	m.verifying = &verifications{Service: m.Service, rollouts: m.Rollouts, nodes: m.Distribution, now: time.Now, late: map[string]retry{}, tries: map[string]int{}}
	return m
}

// Looking says how entities are looked at in all shards. It comes before Run.
func (m *Modules) Looking(look Look) { m.Service.look = look }

// Moved has types called whenever later bindings are served, and settings when
// those of types have changed. It comes before Run.
func (m *Modules) Moved(types, settings func()) { m.Types.moved, m.Settings.moved = types, settings }

// Run keeps types and settings up to the metadata, and copies the modules that
// this node lacks, until ctx ends.
func (m *Modules) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { m.Types.run(ctx) })
	running.Go(func() { m.Settings.run(ctx, m.Types.metadata) })
	running.Go(func() { m.Distribution.run(ctx) })
	running.Go(func() { m.Rollouts.run(ctx) })
	running.Go(func() { m.verifying.run(ctx) })
	running.Wait()
}
