package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/audit"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/backend"
	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/forward"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/signing"
	"github.com/hostd/hostd/host/stall"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/host/traces"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/sharding"
)

// Node is one running node. Its methods are safe for concurrent use.
type Node struct {
	cfg       config.Config
	logger    *slog.Logger
	around    Surroundings
	lifecycle *lifecycle
	id        *datadir.Record
	shards    uint32 // data shards
	ports     *ports
	certs     *certs.Reloader // of the clients' listener; nil without TLS
	peerCerts *certs.Peers    // for other nodes; nil without TLS
	peers     *peer.Peers

	membership *membership
	replicas   replicas
	guests     guests
	region     *entity.ShardRouter
	routing    routing
	deliveries deliveries
	backup     backups
	backend    backend.Backend
	metrics    *metrics
	watches    watches
	strangers  strangers
	auth       atomic.Pointer[authn.Authenticator] // nil: nobody is asked who calls
	roles      *authorize.Authorizer               // nil likewise
	audit      *audit.Calls                        // nil: no account is kept

	joined   atomic.Bool // the node belongs to a cluster, and its parts are open
	served   atomic.Bool // the node was ready since its start
	caughtUp atomic.Bool // the metadata is as fresh as the cluster's, and its modules are loaded
}

// guests are what runs guests, and what is known of them.
type guests struct {
	engine  *guest.Engine
	files   *guest.Registry // of modules
	trust   *signing.Trust
	modules *modules.Modules
	states  *entity.StateChecker
	replays *replay.Replays

	collected atomic.Uint64 // modules, as coordinator
}

// routing is the way of a request from this node to the one that leads its
// shard.
type routing struct {
	leaders *cluster.Leaders
	router  *router.Router
	forward *forward.Client
	spans   *traces.Provider // nil: none are made
}

// watches notice what stands still, is full or is wrong around the node.
type watches struct {
	pauses *stall.PauseWatch
	stalls *stall.Guard
	disk   datadir.DiskMark
	clock  *cluster.ClockWatch
}

// Start opens the data directory and returns once the node belongs to a
// cluster: in an empty directory it founds one, or joins that of its seeds,
// however long that takes; ctx ends the attempt. Ready says when it serves. A
// fault of the disk later ends the process: after a failed sync nothing that
// was written can be trusted.
func Start(ctx context.Context, cfg config.Config, logger *slog.Logger) (*Node, error) {
	return StartOn(ctx, cfg, logger, network.TCP{Local: localOf(cmp.Or(cfg.PeerListen, cfg.Listen))})
}

// localOf is the one address that a node listens on for other nodes, from which
// it also dials; none where it listens on several.
func localOf(listen string) netip.Addr {
	at, err := netip.ParseAddrPort(listen)
	if err != nil || at.Addr().IsUnspecified() {
		return netip.Addr{}
	}
	return at.Addr()
}

// Surroundings are what a node stands on.
type Surroundings struct {
	Network network.Network
	// Disk holds the write-ahead log, the snapshots that are received and, where
	// they are verified, the store's tables; nil is the operating system's.
	Disk disk.FS
	// Wall is the clock that other nodes are told, and that theirs are compared
	// with; nil is time.Now.
	Wall func() time.Time
	// CheckStates is of how many stays of entities in memory one is checked when
	// it ends; 0 is 1,000.
	CheckStates int
	// Exit ends the process; nil is os.Exit. What follows where it returns is
	// undefined: it is for tests.
	Exit func(code int)
}

// StartOn is Start on a network of the caller's.
func StartOn(ctx context.Context, cfg config.Config, logger *slog.Logger, on network.Network) (*Node, error) {
	return StartIn(ctx, cfg, logger, Surroundings{Network: on})
}

// StartIn is Start in surroundings of the caller's.
func StartIn(ctx context.Context, cfg config.Config, logger *slog.Logger, around Surroundings) (*Node, error) {
	if around.Disk == nil {
		around.Disk = disk.OS{}
	}
	if around.Exit == nil {
		around.Exit = os.Exit
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, logger: logger, around: around, lifecycle: newLifecycle(logger)}
	n.ports = newPorts(n.joined.Load)
	order := []struct {
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
	for _, s := range order {
		if err := s.open(ctx); err != nil {
			err = n.membership.renewAtStart(ctx, err)
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.StopTimeout)
			defer cancel()
			return nil, errors.Join(fmt.Errorf("start %s: %w", s.name, err), n.Stop(stopping))
		}
	}
	n.lifecycle.watch("background work", n.run)
	n.lifecycle.add("leaderships", n.handOver)
	n.logger.Info("node started", "node_id", n.id.Node, "cluster_id", n.id.Now().Cluster, "address", n.Addr(), "peer_address", n.PeerAddr(), "shards", n.shards)
	return n, nil
}

// fatal ends the process: what was acknowledged is in the log, and nothing
// more may be.
func (n *Node) fatal(err error) {
	if n.lifecycle.stopping.Load() {
		n.logger.Error("the journal failed while the node stopped", "error", err)
		return
	}
	n.logger.Error("the journal failed; the process ends so that nothing unproven is acknowledged", "error", err)
	n.around.Exit(1)
}

// Failed returns a channel that gets an error when the node does not serve any
// more though nobody stopped it: its port is gone. It is to be stopped then, and
// the process to end.
func (n *Node) Failed() <-chan error { return n.lifecycle.failed }

// Addr is the address where the node serves clients, host:port.
func (n *Node) Addr() string { return n.ports.clients.http.Addr().String() }

// PeerAddr is the address where the node serves other nodes, host:port.
func (n *Node) PeerAddr() string { return n.ports.peers.http.Addr().String() }

// HealthAddr is the address where the node answers how it is, host:port; empty
// where it has no listener for that alone.
func (n *Node) HealthAddr() string {
	if n.ports.health == nil {
		return ""
	}
	return n.ports.health.Addr().String()
}

// advertised and peersAdvertised are the addresses that clients and other nodes
// reach the node at.
func (n *Node) advertised() string { return n.cfg.Addr(n.ports.clients.http.Addr()) }
func (n *Node) peersAdvertised() string {
	return n.cfg.PeerAddr(n.ports.peers.http.Addr())
}

// ID is the node's name.
func (n *Node) ID() sharding.NodeID { return n.id.Node }

// Stop ends the node in the reverse order of its start: calls in flight are
// answered first, and what is committed is stored. It returns all that failed.
func (n *Node) Stop(ctx context.Context) error { return n.lifecycle.stop(ctx) }

// run does the background work until ctx ends.
func (n *Node) run(ctx context.Context) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	tasks.Go(func() { n.replicas.judge.Run(ctx) })
	tasks.Go(func() { cluster.AuditRows(ctx, n.replicas.machine, n.logger) })
	tasks.Go(func() { n.follow(ctx) })
	tasks.Go(func() { n.catchUp(ctx) })
	tasks.Go(func() { n.membership.hear(ctx) })
	tasks.Go(func() { n.guests.modules.Run(ctx) })
	tasks.Go(func() { n.guests.replays.Shadow(ctx) })
	tasks.Go(func() {
		if err := n.watches.disk.Watch(ctx); err != nil {
			n.fatal(err)
		}
	})
	tasks.Go(func() { n.watches.clock.Run(ctx) })
	tasks.Go(func() { n.membership.seeds.Run(ctx) })
	tasks.Go(func() { n.membership.watchReplaced(ctx) })
	tasks.Go(func() { n.releaseMapped(ctx) })
	tasks.Go(func() {
		if err := cluster.ScrubTables(ctx, n.replicas.store, int64(n.cfg.ScrubBytesPerSecond), n.replicas.applier.StopAll, n.logger); err != nil {
			n.fatal(err)
		}
	})
	tasks.Go(func() { n.membership.renewal().Run(ctx, n.replicas.machine) })
	tasks.Go(func() { n.soleShards().Run(ctx) })
	if len(n.cfg.ClientsUnguarded())+len(n.cfg.PeersUnguarded()) > 0 {
		tasks.Go(func() { n.warnInsecure(ctx) })
	}
}

func (n *Node) warnInsecure(ctx context.Context) {
	every := time.NewTicker(time.Minute)
	defer every.Stop()
	for {
		for _, what := range n.cfg.ClientsUnguarded() {
			n.logger.Warn(what, "address", n.Addr())
		}
		for _, what := range n.cfg.PeersUnguarded() {
			n.logger.Warn(what, "peer_address", n.PeerAddr())
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// Version returns the release.
func Version() string { return telemetry.Version() }
