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
	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/forward"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/host/router"
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
	shards    uint32 // number of data shards
	ports     *ports
	certs     *certs.Reloader // certificates of the clients' listener; nil if its TLS is off
	peerCerts *certs.Peers    // certificates for connections between nodes; nil if their TLS is off
	peers     *peer.Peers

	membership  *membership
	replicas    replicas
	guests      guests
	shardRouter *entity.ShardRouter
	routing     routing
	deliveries  deliveries
	backup      backups
	api         apiParts
	metrics     *metrics
	watches     watches
	strangers   strangers
	auth        atomic.Pointer[authn.Authenticator] // nil if callers are not authenticated
	roles       *authorize.Authorizer               // nil if callers are not authenticated
	audit       *audit.Calls                        // nil if the audit log is off

	joined   atomic.Bool // the node belongs to a cluster, and its parts are open
	served   atomic.Bool // the node has been ready at least once since it started
	caughtUp atomic.Bool // the metadata is up to date and its modules are loaded
}

// guests holds the parts that run guests and that know the modules.
type guests struct {
	engine  *guest.Engine
	files   *guest.Registry // files of modules
	trust   *signing.Trust
	modules *modules.Modules
	states  *entity.StateChecker
	replays *replay.Replays

	collected atomic.Uint64 // modules removed by the coordinator on this node
}

// routing holds the parts that carry a request from this node to the leader of
// its shard.
type routing struct {
	leaders *cluster.Leaders
	router  *router.Router
	forward *forward.Client
	spans   *traces.Provider // nil if tracing is off
}

// watches detect stalls, a full disk and a wrong clock.
type watches struct {
	pauses *stall.PauseWatch
	stalls *stall.Guard
	disk   datadir.DiskMark
	clock  *cluster.ClockWatch
}

// Start opens the data directory and returns once the node belongs to a
// cluster. With an empty directory the node bootstraps a cluster or joins the
// cluster of its seeds, which has no time limit; ctx cancels it. The
// node may not serve yet when Start returns, see Ready.
//
// A disk fault after that ends the process: after a failed sync it is unknown
// what is on disk, so nothing may be acknowledged any more.
func Start(ctx context.Context, cfg config.Config, logger *slog.Logger) (*Node, error) {
	return startOn(ctx, cfg, logger, network.TCP{Local: localOf(cmp.Or(cfg.PeerListen, cfg.Listen))})
}

// localOf returns the address that the node listens on for other nodes, which
// it also dials from. It returns the zero address if the node listens on all
// interfaces.
func localOf(listen string) netip.Addr {
	at, err := netip.ParseAddrPort(listen)
	if err != nil || at.Addr().IsUnspecified() {
		return netip.Addr{}
	}
	return at.Addr()
}

// Surroundings are what a node needs from its environment. Tests replace them.
type Surroundings struct {
	Network network.Network
	// Disk holds the write-ahead log, received snapshots and, when they are
	// verified, the store's tables. Nil is the operating system's file system.
	Disk disk.FS
	// Wall is the clock that the node sends to other nodes and compares with
	// their clocks. Nil is time.Now.
	Wall func() time.Time
	// CheckStates is the sampling rate of the state check: of every CheckStates
	// entities that leave memory, the state of one is compared with a replay of
	// its events. 0 is 1,000.
	CheckStates int
	// Exit ends the process. Nil is os.Exit. Only tests may pass a function
	// that returns, and the node's behaviour after that is undefined.
	Exit func(code int)
}

// startOn is Start on the given network.
func startOn(ctx context.Context, cfg config.Config, logger *slog.Logger, on network.Network) (*Node, error) {
	return StartIn(ctx, cfg, logger, Surroundings{Network: on})
}

// StartIn is Start in the given surroundings.
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
	n.ports = newPorts(&n.cfg, &n.joined)
	// Each step may use the parts that were opened before it. The server opens
	// early, because other nodes probe this node while it joins. It rejects
	// all other calls until the node has joined and the remaining parts are
	// open.
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
	n.lifecycle.add("leaderships", n.transferLeaders)
	n.logger.Info("node started", "node_id", n.id.Node, "cluster_id", n.id.Now().Cluster, "address", n.Addr(), "peer_address", n.PeerAddr(), "shards", n.shards)
	return n, nil
}

// fatal ends the process. All acknowledged writes are in the log, and none may
// be acknowledged after this.
func (n *Node) fatal(err error) {
	if n.lifecycle.Stopping() {
		n.logger.Error("the journal failed while the node stopped", "error", err)
		return
	}
	n.logger.Error("the journal failed; exiting so that no unsynced write is acknowledged", "error", err)
	n.around.Exit(1)
}

// Failure returns a channel that receives an error if the node no longer serves
// although nobody stopped it, for example because its listener failed. The
// caller must stop the node then.
func (n *Node) Failure() <-chan error { return n.lifecycle.failed }

// Addr returns the address where the node serves clients, as host:port.
func (n *Node) Addr() string { return n.ports.clients.http.Addr().String() }

// PeerAddr returns the address where the node serves other nodes, as host:port.
func (n *Node) PeerAddr() string { return n.ports.peers.http.Addr().String() }

// HealthAddr returns the address of the listener for health checks, as
// host:port, or "" if there is none.
func (n *Node) HealthAddr() string {
	if n.ports.health == nil {
		return ""
	}
	return n.ports.health.Addr().String()
}

// ID returns the node's name.
func (n *Node) ID() sharding.NodeID { return n.id.Node }

// Stop stops the node's parts in the reverse order of their start: it answers
// calls in flight first, then stores everything that is committed. It returns
// the errors of all parts joined.
func (n *Node) Stop(ctx context.Context) error { return n.lifecycle.stop(ctx) }

// run does the background work until ctx ends.
func (n *Node) run(ctx context.Context) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	tasks.Go(func() { n.replicas.consistency.Run(ctx) })
	tasks.Go(func() { cluster.CheckRows(ctx, n.replicas.machine, n.logger) })
	tasks.Go(func() { n.follow(ctx) })
	tasks.Go(func() { n.catchUp(ctx) })
	tasks.Go(func() { n.membership.followGossip(ctx) })
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
