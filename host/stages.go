package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/region"
	"github.com/hostd/hostd/host/registry"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// raftLog is the raft loop as the parts see it that are made before it.
type raftLog struct {
	loop  atomic.Pointer[raftgroup.Loop]
	mu    sync.Mutex
	nodes map[sharding.NodeID]bool // whether each was heard last
}

func (r *raftLog) Propose(shard sharding.ShardID, fence sharding.Term, proposal uint64, data []byte) error {
	if l := r.loop.Load(); l != nil {
		return l.Propose(shard, fence, proposal, data)
	}
	return raftgroup.ErrStopped
}

// receive passes on a frame of another node.
func (r *raftLog) receive(from sharding.NodeID, frame []byte) {
	if l := r.loop.Load(); l != nil {
		_ = l.Receive(from, frame) // a frame that is none is a stranger's fault
	}
}

// heard and silent pass on who is heard.
func (r *raftLog) heard(node sharding.NodeID)  { r.note(node, true) }
func (r *raftLog) silent(node sharding.NodeID) { r.note(node, false) }

func (r *raftLog) note(node sharding.NodeID, heard bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes == nil {
		r.nodes = map[sharding.NodeID]bool{}
	}
	r.nodes[node] = heard
	if l := r.loop.Load(); l != nil {
		tell(l, node, heard)
	}
}

func tell(l *raftgroup.Loop, node sharding.NodeID, heard bool) {
	if heard {
		l.PeerHeard(node)
	} else {
		l.PeerSilent(node)
	}
}

// open gives the parts their loop, and the loop what was heard before it.
func (r *raftLog) open(l *raftgroup.Loop) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loop.Store(l)
	for node, heard := range r.nodes {
		tell(l, node, heard)
	}
}

func (r *raftLog) ReadIndex(shard sharding.ShardID, token uint64) error {
	if l := r.loop.Load(); l != nil {
		return l.ReadIndex(shard, token)
	}
	return raftgroup.ErrStopped
}

// proposalLog is what lanes propose to.
type proposalLog struct {
	*raftLog
	backlog func() int64
	held    func() bool // for an export
}

// backlogBytes is the unapplied and unstored work above which lanes hold
// requests back; the raft loop refuses proposals at twice as much.
const backlogBytes = 32 << 20

// rememberRate is how many remembered entities a node starts in a second.
const rememberRate = 5000

func (p proposalLog) Busy() bool { return p.backlog() > backlogBytes || p.held() }

func (n *Node) openDirectory(context.Context) error {
	dir := n.cfg.DataDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	n.closeLast("lock", func(context.Context) error { return lock.Close() })
	if err := n.disk.open(dir, &n.cfg, n.logger); err != nil {
		return err
	}
	n.id, err = openIdentity(dir, n.cfg.NodeID, time.Now())
	return err
}

func (n *Node) openListener(context.Context) error {
	l, err := n.network.Listen(n.cfg.Listen)
	if err != nil {
		return err
	}
	n.http, n.gossip = network.Split(l)
	n.closeLast("listener", func(context.Context) error { return errors.Join(n.http.Close(), n.gossip.Close()) })
	n.prom = telemetry.NewRegistry(telemetry.Version())
	n.metrics = newMetrics(n.prom)
	return n.openPeers()
}

func (n *Node) openJournal(context.Context) error {
	log, err := wal.Open(disk.OS{}, filepath.Join(n.cfg.DataDir, walDir), wal.Options{
		SegmentBytes: int64(n.cfg.WALSegmentBytes), Logger: n.logger, ObserveSync: n.metrics.observeSync,
	})
	if err != nil {
		return err
	}
	n.log = log
	n.closeLast("write-ahead log", func(context.Context) error { return log.Close() })
	return n.remember(func(id *identity) bool {
		had := id.Journal
		id.Journal = true
		return !had
	})
}

func (n *Node) openEngine(ctx context.Context) error {
	limits := abi.DefaultLimits()
	limits.MemoryBytes = int(n.cfg.InstanceMemoryBytes)
	limits.ModuleBytes = int(n.cfg.MaxModuleBytes)
	limits.CommandFuel, limits.QueryFuel = n.cfg.CommandFuel, n.cfg.QueryFuel
	var compile []string
	if n.cfg.CompileProgram != "" {
		compile = []string{n.cfg.CompileProgram, "compile-module"}
	}
	e, err := engine.New(ctx, engine.Options{
		Limits: limits, MemoryBytes: 2 * int64(n.cfg.GuestMemoryBytes), CompileCommand: compile,
		CacheDir: filepath.Join(n.cfg.DataDir, cacheDir), Logger: n.logger,
	})
	if err != nil {
		return err
	}
	n.engine = e
	n.closeLast("engine", e.Close)
	n.modules, err = registry.Open(registry.Options{Dir: filepath.Join(n.cfg.DataDir, modulesDir), Engine: e})
	if err != nil {
		return err
	}
	n.closeLast("modules", func(context.Context) error { return n.modules.Close() })
	return nil
}

func (n *Node) openEntities(context.Context) error {
	rec, err := raftgroup.Recover(n.log)
	if err != nil {
		return err
	}
	n.store, err = store.Open(filepath.Join(n.cfg.DataDir, storeDir), store.Options{Watermark: rec.Watermark, Logger: n.logger})
	if err != nil {
		return err
	}
	n.closeLast("store", func(context.Context) error { return n.store.Close() })
	state := meta.New()
	snapshots := filepath.Join(n.cfg.DataDir, snapshotDir)
	n.machine, err = eventlog.Open(n.store, rec.Watermark, eventlog.Options{
		Metadata: cluster.Machine{State: state}, Lives: rec.Lives(disk.OS{}, snapshots), Logger: n.logger,
	})
	if err != nil {
		return err
	}
	targets := make(map[sharding.ShardID]uint64, len(rec.Groups))
	for _, g := range rec.Groups {
		targets[g.Shard] = g.LastIndex
	}
	if err := n.machine.SetRecoveryTargets(targets); err != nil {
		return err
	}
	applied, _ := n.machine.Applied(sharding.MetaShard)
	n.metadata = cluster.NewMetadata(state, applied)
	n.shardKeys = newShardKeys(n.id.Shards, n.metadata.View)
	n.typeSettings = newSettingsOfTypes()
	n.bindings = newBindings(n.metadata, n.shardKeys, n.logger, n.loadType)
	lanes := n.cfg.Lanes
	if lanes == 0 {
		lanes = max(1, min(runtime.GOMAXPROCS(0), runtime.NumCPU())-1)
	}
	n.part = n.newPart()
	n.region, err = region.New(region.Options{
		Lanes: lanes, Shards: n.id.Shards, Locate: n.shardKeys.Locate, Metadata: n.metadata, ReadOnly: n.disk.readOnly.Load, Sent: n.sent, Outside: n.part,
		Lane: entity.Options{
			Journal:        proposalLog{&n.raft, func() int64 { return n.applier.Backlog() }, n.part.Held},
			Histories:      eventlog.History{Machine: n.machine},
			Types:          n.bindings,
			Remembered:     n.bindings.remembered,
			Living:         n.machine,
			Singletons:     func(s sharding.ShardID) []sharding.EntityID { return n.bindings.singletons(s, n.shardKeys.Locate) },
			RememberRate:   max(1, rememberRate/lanes),
			TimerRate:      max(1, n.cfg.TimerRate/lanes),
			TimerFired:     n.metrics.observeTimer,
			IdleAfter:      n.typeSettings.idleAfter,
			Keeping:        n.typeSettings.keeping,
			Bindings:       n.bindings.reached.Load,
			Logger:         n.logger,
			EntityInFlight: n.cfg.MaxEntityInFlight,
			ShardInFlight:  n.cfg.MaxShardInFlight,
			LaneBytes:      int64(n.cfg.GuestMemoryBytes) / int64(lanes),
			Limits:         n.engine.Limits(),
		},
	})
	if err != nil {
		return err
	}
	n.bindings.moved = n.region.BindingsMoved
	n.typeSettings.moved = n.region.IdleTimesMoved
	n.closeLast("lanes", n.region.Close)
	n.closeLast("transfers", func(context.Context) error { n.part.Close(); return nil })
	n.applier, err = eventlog.StartApplier(n.machine, eventlog.ApplierOptions{
		Sink: n.region, Fatal: n.fatal, Logger: n.logger,
		FlushBytes: 4 << 20, FlushInterval: 400 * time.Millisecond, Room: n.store.Room, Awaited: n.part.Held,
	})
	if err != nil {
		return err
	}
	n.closeLast("applier", n.applier.Close)
	loop, err := raftgroup.Start(rec, raftgroup.Options{
		Self: n.id.Node, Log: n.log, Machine: n.applier, Sink: n.region, Fatal: n.fatal, Logger: n.logger,
		Transport: n.peers, Locate: n.book.Locate,
		Snapshots: n.applier, SnapshotFS: disk.OS{}, SnapshotDir: snapshots, Sender: snapshotSender{n.peers},
		Applied:         func(s sharding.ShardID) uint64 { index, _ := n.machine.Applied(s); return index },
		MaxBacklogBytes: 2 * backlogBytes,
	})
	if err != nil {
		return err
	}
	n.raft.open(loop)
	n.closeLast("raft groups", loop.Close)
	n.metrics.watch(n)
	n.metrics.registry.MustRegister(guestCollector{n})
	n.metrics.watchCluster(n)
	return nil
}
