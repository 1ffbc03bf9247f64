package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/region"
	"github.com/hostd/hostd/host/registry"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/prometheus/client_golang/prometheus"
)

// Node is one running node. Its methods are safe for concurrent use.
type Node struct {
	cfg    config.Config
	logger *slog.Logger
	id     identity

	listener net.Listener
	server   *rpc.Server
	log      *wal.Log
	store    *store.Store
	machine  *eventlog.Machine
	applier  *eventlog.Applier
	engine   *engine.Engine
	modules  *registry.Registry
	metadata *metadata
	bindings *bindings
	region   *region.Region
	raft     raftLog
	metrics  *metrics
	prom     *prometheus.Registry
	disk     diskMark

	caughtUp atomic.Bool // the metadata is as fresh as the cluster's, and its modules are loaded
	stopping atomic.Bool
	cancel   context.CancelFunc // of background
	tasks    sync.WaitGroup     // background goroutines
	closers  []closer           // of what is open, in the order opened
	stopOnce sync.Once
	stopErr  error
}

// closer ends one stage.
type closer struct {
	name  string
	close func(context.Context) error
}

// raftLog is the raft loop as the parts see it that are made before it.
type raftLog struct {
	loop atomic.Pointer[raftgroup.Loop]
}

func (r *raftLog) Propose(shard sharding.ShardID, fence sharding.Term, proposal uint64, data []byte) error {
	if l := r.loop.Load(); l != nil {
		return l.Propose(shard, fence, proposal, data)
	}
	return raftgroup.ErrStopped
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
}

// backlogBytes is the unapplied and unstored work above which lanes hold
// requests back; the raft loop refuses proposals at twice as much.
const backlogBytes = 32 << 20

func (p proposalLog) Busy() bool { return p.backlog() > backlogBytes }

// Start opens the data directory, founding a cluster of one in an empty one,
// and returns once the node listens. Ready says when it serves. A fault of the
// disk later ends the process: after a failed sync nothing that was written
// can be trusted.
func Start(ctx context.Context, cfg config.Config, logger *slog.Logger) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	background, cancel := context.WithCancel(context.Background())
	n := &Node{cfg: cfg, logger: logger, cancel: cancel}
	n.opened("background work", func(context.Context) error {
		cancel()
		n.tasks.Wait()
		return nil
	})
	stages := []struct {
		name string
		open func(context.Context) error
	}{
		{"data directory", n.openDirectory},
		{"listener", n.openListener},
		{"journal", n.openJournal},
		{"engine", n.openEngine},
		{"entities", n.openEntities},
		{"server", n.openServer},
		{"cluster", n.openCluster},
	}
	for _, s := range stages {
		if err := s.open(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("start %s: %w", s.name, err), n.Stop(ctx))
		}
	}
	n.run(background)
	n.logger.Info("node started", "node_id", n.id.Node, "cluster_id", n.id.Cluster, "address", n.Addr(), "shards", n.id.Shards)
	return n, nil
}

func (n *Node) opened(name string, close func(context.Context) error) {
	n.closers = append(n.closers, closer{name, close})
}

// fatal ends the process: what was acknowledged is in the log, and nothing
// more may be.
func (n *Node) fatal(err error) {
	if n.stopping.Load() {
		n.logger.Error("the journal failed while the node stopped", "error", err)
		return
	}
	n.logger.Error("the journal failed; the process ends so that nothing unproven is acknowledged", "error", err)
	os.Exit(1)
}

func (n *Node) openDirectory(context.Context) error {
	dir := n.cfg.DataDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	n.opened("lock", func(context.Context) error { return lock.Close() })
	id, _, err := openIdentity(dir, &n.cfg)
	if err != nil {
		return err
	}
	if id.Shards != n.cfg.Shards {
		n.logger.Warn("the number of shards is fixed when a cluster is created; the configured one is not used", "configured", n.cfg.Shards, "shards", id.Shards)
	}
	n.id = id
	return n.disk.open(dir, &n.cfg, n.logger)
}

func (n *Node) openListener(context.Context) error {
	l, err := net.Listen("tcp", n.cfg.Listen)
	if err != nil {
		return err
	}
	n.listener = l
	n.opened("listener", func(context.Context) error {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	n.prom = telemetry.NewRegistry(telemetry.Version())
	n.metrics = newMetrics(n.prom)
	return nil
}

func (n *Node) openJournal(context.Context) error {
	log, err := wal.Open(disk.OS{}, filepath.Join(n.cfg.DataDir, walDir), wal.Options{
		SegmentBytes: int64(n.cfg.WALSegmentBytes), Logger: n.logger, ObserveSync: n.metrics.observeSync,
	})
	if err != nil {
		return err
	}
	n.log = log
	n.opened("write-ahead log", func(context.Context) error { return log.Close() })
	return nil
}

func (n *Node) openEngine(ctx context.Context) error {
	limits := abi.DefaultLimits()
	limits.MemoryBytes = int(n.cfg.InstanceMemoryBytes)
	limits.ModuleBytes = int(n.cfg.MaxModuleBytes)
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
	n.opened("engine", e.Close)
	n.modules, err = registry.Open(registry.Options{Dir: filepath.Join(n.cfg.DataDir, modulesDir), Engine: e})
	if err != nil {
		return err
	}
	n.opened("modules", func(context.Context) error { return n.modules.Close() })
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
	n.opened("store", func(context.Context) error { return n.store.Close() })
	state := meta.New()
	n.machine, err = eventlog.Open(n.store, rec.Watermark, eventlog.Options{Metadata: metaMachine{state}, Logger: n.logger})
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
	n.metadata = newMetadata(state)
	n.bindings = newBindings(n.metadata, n.logger, n.loadType)
	lanes := n.cfg.Lanes
	if lanes == 0 {
		lanes = max(1, runtime.GOMAXPROCS(0)-1)
	}
	n.region, err = region.New(region.Options{
		Lanes: lanes, Shards: n.id.Shards, Metadata: n.metadata, ReadOnly: n.disk.readOnly.Load,
		Lane: entity.Options{
			Journal:        proposalLog{&n.raft, func() int64 { return n.applier.Backlog() }},
			Histories:      eventlog.History{Machine: n.machine},
			Types:          n.bindings,
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
	n.opened("lanes", n.region.Close)
	n.applier, err = eventlog.StartApplier(n.machine, eventlog.ApplierOptions{Sink: n.region, Fatal: n.fatal, Logger: n.logger, FlushBytes: 2 << 20, FlushInterval: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	n.opened("applier", n.applier.Close)
	loop, err := raftgroup.Start(rec, raftgroup.Options{
		Self: n.id.Node, Log: n.log, Machine: n.applier, Sink: n.region, Fatal: n.fatal, Logger: n.logger,
		Applied:         func(s sharding.ShardID) uint64 { index, _ := n.machine.Applied(s); return index },
		MaxBacklogBytes: 2 * backlogBytes,
	})
	if err != nil {
		return err
	}
	n.raft.loop.Store(loop)
	n.opened("raft groups", loop.Close)
	n.metadata.start(&n.raft)
	n.metrics.watch(n)
	return nil
}

func (n *Node) openServer(context.Context) error {
	opts := rpc.Options{
		NodeID: n.id.Node, Logger: n.logger, Metrics: telemetry.Handler(n.prom, n.logger), Registerer: n.prom, Ready: n.readiness,
		DefaultDeadline: n.cfg.DefaultDeadline, MaxDeadline: n.cfg.MaxDeadline,
		MaxMessageBytes: int(n.cfg.MaxMessageBytes),
	}
	if err := opts.Validate(); err != nil {
		return err
	}
	n.server = rpc.NewServer(n.services(), opts)
	served := make(chan error, 1)
	go func() { served <- n.server.Serve(n.listener) }()
	n.opened("server", func(ctx context.Context) error {
		return errors.Join(n.server.Shutdown(ctx), <-served)
	})
	return nil
}

// Addr is the address the node listens on, host:port.
func (n *Node) Addr() string { return n.listener.Addr().String() }

// ID is the node's name.
func (n *Node) ID() sharding.NodeID { return n.id.Node }

// Ready reports whether the node serves: it is caught up and every shard has
// a leader.
func (n *Node) Ready() bool { return n.readiness() == nil }

var (
	errCatchingUp = errors.New("the node is catching up with the metadata")
	errElecting   = errors.New("shards are electing their leaders")
	errStopping   = errors.New("the node is stopping")
)

func (n *Node) readiness() error {
	switch {
	case n.stopping.Load():
		return errStopping
	case !n.caughtUp.Load():
		return errCatchingUp
	case !n.region.Led():
		return errElecting
	}
	return nil
}

// Stop ends the node in the reverse order of its start: calls in flight are
// answered first, and what is committed is stored. It returns all that failed.
func (n *Node) Stop(ctx context.Context) error {
	n.stopOnce.Do(func() {
		n.stopping.Store(true)
		n.cancel()
		var errs []error
		for i := len(n.closers) - 1; i >= 0; i-- {
			if err := n.closers[i].close(ctx); err != nil {
				errs = append(errs, fmt.Errorf("stop %s: %w", n.closers[i].name, err))
			}
		}
		n.stopErr = errors.Join(errs...)
	})
	return n.stopErr
}

// run starts the background work.
func (n *Node) run(ctx context.Context) {
	n.tasks.Go(func() { n.bindings.run(ctx) })
	n.tasks.Go(func() { n.disk.watch(ctx) })
	if n.cfg.InsecureListen {
		n.tasks.Go(func() { n.warnInsecure(ctx) })
	}
}

func (n *Node) warnInsecure(ctx context.Context) {
	every := time.NewTicker(time.Minute)
	defer every.Stop()
	for {
		n.logger.Warn("calls are not authenticated and not encrypted: anyone who reaches this address controls the node", "address", n.Addr())
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// Version returns the release.
func Version() string { return telemetry.Version() }
