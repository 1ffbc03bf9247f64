package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/deliver"
	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/host/forward"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/pause"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/region"
	"github.com/hostd/hostd/host/registry"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/host/transfer"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/membership"
)

// Node is one running node. Its methods are safe for concurrent use.
type Node struct {
	cfg    config.Config
	logger *slog.Logger
	id     identity

	network        network.Network
	http           net.Listener // the two halves of the node's port
	gossip         net.Listener
	server         *rpc.Server
	control        *cluster.Control
	peers          *peer.Peers
	gossiped       *membership.Membership
	book           *cluster.Book
	log            *wal.Log
	store          *store.Store
	machine        *eventlog.Machine
	applier        *eventlog.Applier
	engine         *engine.Engine
	modules        *registry.Registry
	metadata       *cluster.Metadata
	member         *cluster.Member
	shardKeys      *shardKeys
	bindings       *bindings
	typeSettings   *settingsOfTypes
	region         *region.Region
	leaders        *leaders
	router         *router.Router
	pump           atomic.Pointer[deliver.Pump]
	forward        *forward.Client
	forwarded      http.Handler // what other nodes forward
	stopServer     func() error
	closeForwarded func(context.Context) error
	part           *transfer.Part
	transfers      *transfer.Cluster
	transferred    http.Handler // other nodes' exports and imports
	raft           raftLog
	pauses         *pause.Watch
	metrics        *metrics
	prom           *prometheus.Registry
	disk           diskMark
	idMu           sync.Mutex // of changes to id, which only remember makes once the node is open
	unknown        *confirmation
	faults         faultCounts
	folds          chan struct{} // one slot for each state that is folded

	joined   atomic.Bool // the node belongs to a cluster, and its parts are open
	caughtUp atomic.Bool // the metadata is as fresh as the cluster's, and its modules are loaded
	voted    atomic.Bool // the metadata has had all voters that the hosts allow
	stopping atomic.Bool
	failed   chan error     // one slot: why the node cannot go on
	tasks    sync.WaitGroup // background goroutines
	closers  []closer       // of what is open, in the order opened
	stopOnce sync.Once
	stopErr  error
}

// closer ends one stage.
type closer struct {
	name  string
	close func(context.Context) error
}

// Start opens the data directory and returns once the node belongs to a
// cluster: in an empty directory it founds one, or joins that of its seeds,
// however long that takes; ctx ends the attempt. Ready says when it serves. A
// fault of the disk later ends the process: after a failed sync nothing that
// was written can be trusted.
func Start(ctx context.Context, cfg config.Config, logger *slog.Logger) (*Node, error) {
	return StartOn(ctx, cfg, logger, network.TCP{Local: localOf(cfg.Listen)})
}

// localOf is the one address that a node listens on, from which it also dials;
// none where it listens on several.
func localOf(listen string) netip.Addr {
	at, err := netip.ParseAddrPort(listen)
	if err != nil || at.Addr().IsUnspecified() {
		return netip.Addr{}
	}
	return at.Addr()
}

// StartOn is Start on a network of the caller's.
func StartOn(ctx context.Context, cfg config.Config, logger *slog.Logger, on network.Network) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, logger: logger, network: on, unknown: newConfirmation(), folds: make(chan struct{}, maxFolds), failed: make(chan error, 1)}
	stages := []struct {
		name string
		open func(context.Context) error
	}{
		{"data directory", n.openDirectory},
		{"listener", n.openListener},
		{"server", n.openServer},
		{"cluster", n.enterCluster},
		{"journal", n.openJournal},
		{"engine", n.openEngine},
		{"entities", n.openEntities},
		{"requests", n.openRequests},
		{"deliveries", n.openDeliveries},
		{"membership", n.openMembership},
	}
	for _, s := range stages {
		if err := s.open(ctx); err != nil {
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.StopTimeout)
			defer cancel()
			return nil, errors.Join(fmt.Errorf("start %s: %w", s.name, err), n.Stop(stopping))
		}
	}
	background, cancel := context.WithCancel(context.Background())
	n.run(background)
	n.closeLast("background work", func(context.Context) error {
		cancel()
		n.tasks.Wait()
		return nil
	})
	n.closeLast("leaderships", n.handOver)
	n.logger.Info("node started", "node_id", n.id.Node, "cluster_id", n.id.Cluster, "address", n.Addr(), "shards", n.id.Shards)
	return n, nil
}

func (n *Node) closeLast(name string, close func(context.Context) error) {
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

// Failed returns a channel that gets an error when the node does not serve any
// more though nobody stopped it: its port is gone. It is to be stopped then, and
// the process to end.
func (n *Node) Failed() <-chan error { return n.failed }

// Addr is the address the node listens on, host:port.
func (n *Node) Addr() string { return n.http.Addr().String() }

// advertised is the address that others reach the node at.
func (n *Node) advertised() string { return n.cfg.Addr(n.http.Addr()) }

// ID is the node's name.
func (n *Node) ID() sharding.NodeID { return n.id.Node }

// Ready reports whether the node serves: it is caught up, every shard has
// replicas, and those with one here have a leader.
func (n *Node) Ready() bool { return n.readiness() == nil }

var (
	errJoining    = errors.New("the node is waiting to join its cluster")
	errCatchingUp = errors.New("the node is catching up with the metadata")
	errPlacing    = errors.New("the cluster waits for more nodes before it places its shards")
	errVoting     = errors.New("the metadata shard waits for its voters")
	errElecting   = errors.New("shards are electing their leaders")
	errStopping   = errors.New("the node is stopping")
	errLeft       = errors.New("the node has left its cluster: stop it")
)

func (n *Node) readiness() error {
	if err := n.opened(); err != nil {
		return err
	}
	places := n.leaders.places.Load()
	switch {
	case n.member.Left():
		return errLeft
	case !n.caughtUp.Load():
		return errCatchingUp
	case !places.placed:
		return errPlacing
	case !n.region.Led(places.hosted):
		return errElecting
	case !n.metadataVoted():
		return errVoting
	}
	return nil
}

// opened says why the node takes no RPC yet.
func (n *Node) opened() error {
	switch {
	case n.stopping.Load():
		return errStopping
	case !n.joined.Load():
		return errJoining
	}
	return nil
}

// Stop ends the node in the reverse order of its start: calls in flight are
// answered first, and what is committed is stored. It returns all that failed.
func (n *Node) Stop(ctx context.Context) error {
	n.stopOnce.Do(func() {
		n.stopping.Store(true)
		var errs []error
		for i := len(n.closers) - 1; i >= 0; i-- {
			began := time.Now()
			if err := n.closers[i].close(ctx); err != nil {
				errs = append(errs, fmt.Errorf("stop %s: %w", n.closers[i].name, err))
			}
			n.logger.Debug("stopped", "part", n.closers[i].name, "duration", time.Since(began))
		}
		n.stopErr = errors.Join(errs...)
	})
	return n.stopErr
}

// run starts the background work.
func (n *Node) run(ctx context.Context) {
	n.tasks.Go(func() { n.bindings.run(ctx) })
	n.tasks.Go(func() { n.followSettings(ctx) })
	n.tasks.Go(func() { n.follow(ctx) })
	n.tasks.Go(func() { n.catchUp(ctx) })
	n.tasks.Go(func() { n.hear(ctx) })
	n.tasks.Go(func() { n.copyModules(ctx) })
	n.tasks.Go(func() { n.disk.watch(ctx) })
	n.tasks.Go(func() { n.releaseMapped(ctx) })
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
