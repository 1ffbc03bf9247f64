package host

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// backlogBytes limits the proposed bytes that are not yet applied and stored.
// Above it, executors hold requests back. The raft loop rejects proposals at
// twice as much.
const backlogBytes = 32 << 20

// alwaysOnRate is the highest number of always-on entities that a node starts
// per second.
const alwaysOnRate = 5000

func (n *Node) openDirectory(context.Context) error {
	dir := n.cfg.DataDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := datadir.Lock(dir)
	if err != nil {
		return err
	}
	n.lifecycle.add("lock", func(context.Context) error { return lock.Close() })
	if err := n.watches.disk.Open(dir, &n.cfg, n.logger); err != nil {
		return err
	}
	if n.id, err = datadir.OpenRecord(dir, n.cfg.NodeID, time.Now()); err != nil {
		return err
	}
	n.membership = &membership{
		cfg: &n.cfg, logger: n.logger, lifecycle: n.lifecycle, id: n.id, addresses: n.ports, raft: &n.replicas.raft, control: &cluster.Control{Addresses: n.ports},
	}
	n.membership.starts, err = datadir.OpenStarts(dir)
	return err
}

func (n *Node) openListener(context.Context) error {
	n.metrics = newMetrics(telemetry.NewRegistry(telemetry.ReadBuild()))
	if err := n.openPeerCertificates(); err != nil {
		return err
	}
	if err := n.ports.listen(n.around.Network, n.cfg.Listen, n.cfg.HealthListen, n.cfg.PeerListens, n.peerCerts); err != nil {
		return err
	}
	n.lifecycle.add("listener", n.ports.close)
	if seed := n.cfg.SkippedPeerListen(n.ports.clients.http.Addr()); seed != "" {
		n.logger.Warn("skipped the default peer port because a seed uses it: if the seed is this node itself, set peer-listen", "address", seed)
	}
	return n.openPeers()
}

func (n *Node) openJournal(context.Context) error {
	log, err := wal.Open(n.watches.stalls.FS(n.around.Disk), filepath.Join(n.cfg.DataDir, datadir.WALDir), wal.Options{
		SegmentBytes: int64(n.cfg.WALSegmentBytes), Logger: n.logger, ObserveSync: n.observeSync,
	})
	if err != nil {
		return err
	}
	n.replicas.log = log
	n.lifecycle.add("write-ahead log", func(context.Context) error { return log.Close() })
	return n.id.Save(func(id *datadir.Identity) bool {
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
	key, err := datadir.OpenCacheKey(n.cfg.DataDir)
	if err != nil {
		return err
	}
	e, err := guest.New(ctx, guest.Options{
		Limits: limits, MemoryBytes: 2 * int64(n.cfg.GuestMemoryBytes), CompileCommand: compile,
		CacheDir: filepath.Join(n.cfg.DataDir, datadir.CacheDir), CacheKey: key, Logger: n.logger,
		TellFaults: n.cfg.ExposeGuestErrors,
	})
	if err != nil {
		return err
	}
	n.guests.engine = e
	n.lifecycle.add("engine", e.Close)
	if err := n.openTrust(); err != nil {
		return err
	}
	n.guests.files, err = guest.OpenRegistry(guest.RegistryOptions{Dir: filepath.Join(n.cfg.DataDir, datadir.ModulesDir), Engine: e})
	if err != nil {
		return err
	}
	n.lifecycle.add("modules", func(context.Context) error { return n.guests.files.Close() })
	return nil
}

func (n *Node) openEntities(context.Context) error {
	rec, err := recovery.Recover(n.replicas.log)
	if err != nil {
		return err
	}
	n.replicas.store, err = store.Open(filepath.Join(n.cfg.DataDir, datadir.StoreDir), store.Options{
		Watermark: rec.Watermark, Disk: n.watches.stalls.FS(n.around.Disk), Fatal: n.fatal, Logger: n.logger,
	})
	if err != nil {
		return err
	}
	n.lifecycle.add("store", func(context.Context) error { return n.replicas.store.Close() })
	state := meta.New()
	snapshots := filepath.Join(n.cfg.DataDir, datadir.SnapshotDir)
	n.replicas.consistency = cluster.NewConsistencyChecker(n.id.Node, n.logger)
	n.replicas.machine, err = eventlog.Open(n.replicas.store, rec.Watermark, eventlog.Options{
		Metadata: cluster.Machine{State: state}, ClusterVersion: state.ClusterVersion, Generations: rec.Generations(n.around.Disk, snapshots), Stopped: n.replicas.raft.onReplicaStopped,
		Differs: n.replicas.consistency.Differs, Seed: rand.Uint64(), Logger: n.logger,
	})
	if err != nil {
		return err
	}
	targets := make(map[sharding.ShardID]uint64, len(rec.Groups))
	for _, g := range rec.Groups {
		targets[g.Shard] = g.LastIndex
	}
	if err := n.replicas.machine.SetRecoveryTargets(targets); err != nil {
		return err
	}
	n.replicas.state.Store(state)
	applied, _ := n.replicas.machine.Applied(sharding.MetaShard)
	n.membership.metadata = cluster.NewMetadata(state, applied)
	n.guests.modules = modules.New(modules.Options{
		Self: n.id.Node, Shards: n.shards, Engine: n.guests.engine, Files: n.guests.files, Metadata: n.membership.metadata, Peers: n.peers, Members: n.membership,
		Disk: &n.watches.disk, CaughtUp: &n.caughtUp, Trust: n.guests.trust, Lines: &n.api.lines, Logger: n.logger,
	})
	n.watches.clock = cluster.NewClockWatch(cluster.ClockWatchOptions{
		Peers: n.peers, SuspectAfter: n.cfg.SuspectAfter, Tick: n.cfg.RaftTick, Changed: n.kick, Logger: n.logger,
	})
	lanes := n.cfg.Executors
	if lanes == 0 {
		lanes = max(1, min(runtime.GOMAXPROCS(0), runtime.NumCPU())-1)
	}
	n.guests.states = entity.NewStateChecker(entity.StateCheckOptions{
		Histories: eventlog.History{Machine: n.replicas.machine}, Every: n.around.CheckStates, Seed: rand.Uint64(), Logger: n.logger,
	})
	n.lifecycle.add("state checks", n.guests.states.Close)
	n.membership.staleDisk = cluster.NewStaleDiskCheck(cluster.StaleDiskCheckOptions{
		Identity: n.id, Entrance: n.membership, AddressBook: n.membership.addressBook, Metadata: n.membership.metadata, Raft: &n.replicas.raft, Lifecycle: n.lifecycle, Logger: n.logger,
	})
	n.backup.part = n.newPart()
	n.shardRouter, err = entity.NewShardRouter(entity.ShardRouterOptions{
		Executors: lanes, Shards: n.shards, Locate: n.guests.modules.Keys.Locate, Metadata: n.membership.metadata, Disk: &n.watches.disk, Outbox: &n.deliveries, Outside: n.backup.part, Disputes: n.replicas.consistency,
		Executor: entity.Options{
			Journal:             proposalLog{&n.replicas.raft, &n.replicas, n.backup.part},
			Histories:           eventlog.History{Machine: n.replicas.machine},
			Types:               n.guests.modules.Types,
			ClusterVersion:      state.ClusterVersion,
			Clocks:              n.watches.clock,
			Activations:         n.guests.modules.Types,
			Settings:            n.guests.modules.Settings,
			Existing:            n.replicas.machine,
			AlwaysOnRate:        max(1, alwaysOnRate/lanes),
			TimerRate:           max(1, n.cfg.TimerRate/lanes),
			TimerObserver:       n.metrics,
			TimerSpans:          n.routing.timerSpans(),
			MinScheduleInterval: n.cfg.MinScheduleInterval,
			Outbox:              &n.deliveries,
			NodeSends:           n.cfg.MaxOutboxMessages,
			NodeSendBytes:       int(n.cfg.MaxOutboxBytes),
			Stages:              n.metrics.commands,
			States:              n.guests.states,
			Logger:              n.logger,
			EntityInFlight:      n.cfg.MaxEntityInFlight,
			ShardInFlight:       n.cfg.MaxShardInFlight,
			ExecutorBytes:       int64(n.cfg.GuestMemoryBytes) / int64(lanes),
			Limits:              n.guests.engine.Limits(),
		},
	})
	if err != nil {
		return err
	}
	n.deliveries.machine, n.deliveries.shardRouter = n.replicas.machine, n.shardRouter
	n.guests.modules.SetExecutors(n.shardRouter)
	n.guests.modules.SetShards(n.ports.server)
	n.lifecycle.add("lanes", n.shardRouter.Close)
	n.lifecycle.add("backups", func(context.Context) error { n.backup.part.Close(); return nil })
	n.replicas.applier, err = eventlog.StartApplier(n.replicas.machine, eventlog.ApplierOptions{
		Sink: n.shardRouter, Fatal: n.fatal, Logger: n.logger,
		FlushBytes: 4 << 20, FlushInterval: 400 * time.Millisecond, FlushPatience: 4, Room: n.replicas.store.Room, Awaited: n.backup.part.ExecutorsFrozen,
	})
	if err != nil {
		return err
	}
	n.lifecycle.add("applier", n.replicas.applier.Close)
	n.replicas.consistency.Open(cluster.ConsistencyCheckerOptions{Machine: n.replicas.machine, Voters: n.membership.metadata, Peers: n.peers, Applier: n.replicas.applier})
	withheld, err := cluster.UnacceptedShards(n.id, rec)
	if err != nil {
		return err
	}
	loop, err := raftgroup.Start(rec, raftgroup.Options{
		Tick: n.cfg.RaftTick, SuspectTicks: int((n.cfg.SuspectAfter + n.cfg.RaftTick - 1) / n.cfg.RaftTick),
		Self: n.id.Node, Log: n.replicas.log, Machine: n.replicas.applier, Sink: n.shardRouter, OnFatal: n.fatal, Logger: n.logger,
		Transport: n.peers, Placement: n.membership.addressBook, OnGroupFailed: n.replicas.groupFailed, AwaitAttestation: n.membership.staleDisk.NeedsAttestation(), HeldShards: withheld,
		Snapshots: n.replicas.applier, SnapshotFS: n.watches.stalls.FS(n.around.Disk), SnapshotDir: snapshots, Sender: snapshotSender{n.peers},
		AppliedIndex:    n.replicas.appliedIndex,
		MaxBacklogBytes: 2 * backlogBytes, CatchUpSpace: n.watches.disk.Spare,
	})
	if err != nil {
		return err
	}
	n.replicas.raft.open(loop)
	n.lifecycle.add("raft groups", loop.Close)
	n.metrics.watch(n)
	n.metrics.registry.MustRegister(guestCollector{n}, signatureCollector{n}, moduleCollector{n}, trial.Collector{Each: n.guests.modules.Types.EachCanary})
	n.metrics.watchCluster(n)
	return nil
}
