package host

import (
	"context"
	"fmt"
	"net/http"

	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/forward"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/host/stall"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

const forwardPath = "/" + peerv1connect.ForwardServiceName + "/"

// openServer starts the server. It answers health checks and probes of other
// nodes at once, and everything else when the node is open.
func (n *Node) openServer(ctx context.Context) error {
	n.watches.pauses = stall.NewPauseWatch()
	n.lifecycle.watch("watch of pauses", n.watches.pauses.Run)
	n.watchStalls()
	if err := n.openCertificates(); err != nil {
		return err
	}
	if id := n.id.Now(); id.Member() {
		// The data directory records whether the clients' listener serves
		// clients only. Once the metadata is open, it overrides this record.
		n.membership.apart.Store(id.Format >= sharding.VersionPeerAddress)
		if err := n.membership.checkTLS(id.Format); err != nil {
			return err
		}
	}
	if n.cfg.PeerTLS() == config.TLSRequire {
		n.membership.apart.Store(true) // the clients' listener does not offer TLS to nodes
	}
	path, peers := n.peers.Handler()
	opts := edge.Options{
		NodeID: n.id.Node, Logger: n.logger, Metrics: telemetry.Handler(n.metrics.registry, n.logger), Registerer: n.metrics.registry,
		Node: served{n}, Admin: n.cfg.Admin == config.AdminFull, Debug: n.cfg.Debug, Hosts: n.cfg.Hosts(), Origins: n.cfg.AllowOrigins, Console: n.cfg.ServesConsole(), HealthHosts: n.cfg.HealthHosts(),
		MaxAddressConns: n.cfg.MaxAddressConns, MaxAddressStreams: n.cfg.MaxAddressStreams,
		DefaultDeadline: n.cfg.DefaultDeadline, MaxDeadline: n.cfg.MaxDeadline,
		MaxMessageBytes: int(n.cfg.MaxMessageBytes), MaxStreamBytes: int(n.cfg.MaxStreamBytes), MaxWaitingBytes: int(n.cfg.MaxWaitingBytes), Pauses: n.watches.pauses,
		Certificates: n.certs, TLSOnly: n.cfg.TLS() == config.TLSRequire,
		PeerCertificates: n.peerCerts,
		Internal: map[string]http.Handler{
			path:        peers,
			forwardPath: &n.ports.forwarded,
			backupPath:  &n.ports.backups,
			leaderproxy.Path: n.peers.Admit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n.ports.server.ForPeers().ServeHTTP(w, r.WithContext(leaderproxy.WithNode(r.Context(), peer.CallerOf(r.Context()).Node)))
			})),
		},
	}
	if err := n.openAuthentication(&opts); err != nil {
		return err
	}
	if err := n.openTraces(ctx, &opts); err != nil {
		return err
	}
	if err := opts.Validate(); err != nil {
		return err
	}
	n.ports.server = services.NewServer(n.api.services(clusterapi.Bootstrapper{
		Control: n.membership.control, Bootstrap: n.membership.bootstrap, HasBootstrapped: &n.membership.bootstrapped, Lifecycle: n.lifecycle, Proxy: n.cfg.Proxy(),
	}), opts)
	n.ports.serve(n.cfg.StopTimeout, func(err error) {
		if !n.lifecycle.Stopping() {
			n.logger.Error("the node stopped serving calls", "error", err)
			n.lifecycle.End(fmt.Errorf("the node stopped serving calls: %w", err))
		}
	})
	n.lifecycle.add("server", func(context.Context) error { return n.ports.stop() })
	return nil
}

// served implements the interface through which the server uses the node.
type served struct{ n *Node }

// Ready returns why the node does not serve, or nil.
func (s served) Ready() error { return s.n.readiness() }

// Remarks returns warnings about a node that is ready but does not serve
// everything.
func (s served) Remarks() string { return s.n.warnings() }

// Opened returns why the node accepts no calls yet, or nil.
func (s served) Opened() error { return s.n.checkOpen() }

// Cluster returns the node's cluster, or "".
func (s served) Cluster() string { return s.n.peers.Cluster() }

// PeersAt returns the address of the peers' listener if the clients' listener
// serves clients only, and "" otherwise.
func (s served) PeersAt() string { return s.n.membership.referral() }

// openRequests opens the path of a request from any node to the leader of its
// shard.
func (n *Node) openRequests(context.Context) (err error) {
	n.routing.leaders = cluster.NewLeaders(n.id.Node, n.shardRouter, &n.replicas, n.peers)
	n.lifecycle.add("leaders", n.routing.leaders.Start(n.kick))
	n.metrics.watchLeads(n)
	n.routing.forward, err = forward.NewClient(forward.Options{Self: n.id.Node, Peers: n.peers, Logger: n.logger, Pauses: n.watches.pauses, Metadata: n.membership.metadata})
	if err != nil {
		return err
	}
	n.lifecycle.add("forwarding", n.routing.forward.Close)
	n.routing.router, err = router.New(router.Options{
		Self: n.id.Node, Shards: n.shards, Locate: n.guests.modules.Keys.Locate, Local: n.routing.withTraces(n.shardRouter), Remote: n.routing.forward, Leaders: n.routing.leaders,
		Pauses: n.watches.pauses,
	})
	if err != nil {
		return err
	}
	n.lifecycle.add("router", n.routing.router.Close)
	serving := forward.ServerOptions{
		Local: n.routing.withTraces(n.shardRouter), Leaders: n.routing.leaders, Shards: n.shards, Locate: n.guests.modules.Keys.Locate, Logger: n.logger,
		Caller: func(ctx context.Context) sharding.NodeID { return peer.CallerOf(ctx).Node },
	}
	if n.cfg.AuditLevel() == config.AuditAll {
		serving.OnForwarded = n.auditForwarded
	}
	if n.roles != nil {
		serving.Roles = n.roles
	}
	server, err := forward.NewServer(serving)
	if err != nil {
		return err
	}
	_, handler := server.Handler()
	n.ports.forwarded.handler = n.peers.Admit(handler)
	n.ports.forwardServer = server
	n.openBackups()
	n.membership.metadata.Start(&n.replicas.raft, n.peers, n.membership.addressBook)
	n.membership.control.Open(cluster.ControlOptions{
		Self: n.id.Node, Version: telemetry.Version(), Name: n.cfg.ClusterName, Metadata: n.membership.metadata, Identity: n.id, Member: n.membership, Peers: n.peers,
		Starts: n.membership.starts, Recovered: n.membership.staleDisk.Recovery(), Disk: &n.watches.disk,
		Blobs: n.guests.modules.Distribution, Distribution: n.guests.modules.Distribution, Activations: n.guests.modules.Types,
		Snapshots: &n.replicas.raft, Consistency: n.replicas.consistency,
	})
	n.peers.Confirm(n.membership.confirmedIncarnation)
	n.peers.SetMembers(n.membership.metadata)
	// The server stops before the parts that answer its calls, so that calls in
	// flight complete.
	n.lifecycle.add("server", func(context.Context) error { return n.ports.stop() })
	return nil
}

// kick makes the node report to the coordinator at once.
func (n *Node) kick() {
	if n.joined.Load() {
		n.membership.member.Kick()
	}
}

// sever closes all connections with a node that is no longer a member.
func (n *Node) sever(node sharding.NodeID) {
	if node == n.id.Node {
		return
	}
	n.peers.Sever(node)
	closed := 0
	if n.peerCerts != nil {
		closed = n.peerCerts.CloseNode(string(node))
	}
	n.logger.Info("stopped serving a node that was declared down or is no longer a member", "node_id", node, "connections_closed", closed)
}

// follow keeps everything derived from the metadata up to date until ctx ends.
func (n *Node) follow(ctx context.Context) {
	leavers := cluster.NewLeavers(n.sever)
	n.membership.addressBook.Follow(ctx, n.membership.metadata, func(view *meta.View) {
		leavers.Learn(view)
		n.routing.leaders.Learn(view, n.shards)
		n.learnLogLevels(view)
		if n.membership.learnApart() {
			n.logger.Info("the client listener no longer serves other nodes at this cluster version", "level", uint32(view.ClusterVersion()), "peer_address", n.membership.addresses.PeerAddress())
			n.ports.part()
		}
		if len(view.Members()) < 2 {
			return
		}
		err := n.id.Save(func(id *datadir.Identity) bool {
			had := id.Several
			id.Several = true
			return !had
		})
		if err != nil {
			n.logger.Error("cannot write the node's identity file", "error", err)
		}
	})
}

// catchUp waits for the current metadata, loads the active modules and marks
// the node as caught up.
func (n *Node) catchUp(ctx context.Context) {
	if n.membership.member.WaitFresh(ctx) != nil {
		return
	}
	if !n.membership.parts() {
		warnShared(&n.cfg, n.logger)
	}
	if err := n.guests.modules.Types.Refresh(ctx); err != nil {
		n.logger.Error("cannot load all active modules; their entity types are not served", "error", err)
	}
	n.takeRoles() // a ready node must know at least the roles in force when it started
	n.warnCallersUnknown()
	n.caughtUp.Store(true)
}
