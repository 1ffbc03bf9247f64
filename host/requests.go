package host

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/forward"
	"github.com/hostd/hostd/host/pause"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

const forwardPath = "/" + peerv1connect.ForwardServiceName + "/"

// openServer begins to serve: probes of other nodes and the health endpoints
// at once, everything else when the node is open.
func (n *Node) openServer(context.Context) error {
	n.watchPauses()
	path, peers := n.peers.Handler()
	opts := rpc.Options{
		NodeID: n.id.Node, Logger: n.logger, Metrics: telemetry.Handler(n.prom, n.logger), Registerer: n.prom,
		Ready: n.readiness, Opened: n.opened, Admin: n.cfg.Admin == config.AdminFull,
		DefaultDeadline: n.cfg.DefaultDeadline, MaxDeadline: n.cfg.MaxDeadline,
		MaxMessageBytes: int(n.cfg.MaxMessageBytes), Pauses: n.pauses,
		Internal: map[string]http.Handler{
			path:         peers,
			forwardPath:  http.HandlerFunc(n.serveForwarded),
			transferPath: http.HandlerFunc(n.serveTransfers),
			rpc.HopPath:  n.peers.Admit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n.server.Hop().ServeHTTP(w, r) })),
		},
	}
	if err := opts.Validate(); err != nil {
		return err
	}
	n.server = rpc.NewServer(n.services(), opts)
	served := make(chan error, 1)
	go func() {
		err := n.server.Serve(n.http)
		if !n.stopping.Load() {
			n.logger.Error("the node takes no calls any more", "error", err)
			n.failed <- fmt.Errorf("the node takes no calls any more: %w", err)
		}
		served <- err
	}()
	n.stopServer = sync.OnceValue(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), n.cfg.StopTimeout)
		defer cancel()
		errs := []error{n.peers.Close(ctx)}
		if n.closeForwarded != nil {
			errs = append(errs, n.closeForwarded(ctx))
		}
		return errors.Join(append(errs, n.server.Shutdown(ctx), <-served)...)
	})
	n.closeLast("server", func(context.Context) error { return n.stopServer() })
	return nil
}

// watchPauses notices from now on when the process stands still.
func (n *Node) watchPauses() {
	n.pauses = pause.New()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.pauses.Run(ctx)
	}()
	n.closeLast("watch of pauses", func(context.Context) error {
		cancel()
		<-ended
		return nil
	})
}

// serveForwarded serves other nodes' requests once there is something to run
// them.
func (n *Node) serveForwarded(w http.ResponseWriter, r *http.Request) {
	if !n.joined.Load() {
		http.Error(w, errJoining.Error(), http.StatusServiceUnavailable)
		return
	}
	n.forwarded.ServeHTTP(w, r)
}

// openRequests opens the way of a request from any node to the one that leads
// its shard.
func (n *Node) openRequests(context.Context) (err error) {
	n.leaders = newLeaders(n.id.Node, n.region)
	n.closeLast("leaders", n.leaders.start(n.leadershipMoved))
	n.forward, err = forward.NewClient(forward.Options{Self: n.id.Node, Connect: n.peers.Client, Logger: n.logger, Epoch: n.pauses.Epoch})
	if err != nil {
		return err
	}
	n.closeLast("forwarding", n.forward.Close)
	n.router, err = router.New(router.Options{
		Self: n.id.Node, Shards: n.id.Shards, Locate: n.shardKeys.Locate, Local: n.region, Remote: n.forward, Leaders: n.leaders,
		Epoch: n.pauses.Epoch,
	})
	if err != nil {
		return err
	}
	n.closeLast("router", n.router.Close)
	server, err := forward.NewServer(forward.ServerOptions{Local: n.region, Leaders: n.leaders, Shards: n.id.Shards, Locate: n.shardKeys.Locate, Logger: n.logger})
	if err != nil {
		return err
	}
	_, handler := server.Handler()
	n.forwarded = n.peers.Admit(handler)
	n.closeForwarded = server.Close
	n.openTransfers()
	n.metadata.Start(&n.raft, n.peers, func(r sharding.ReplicaID) (sharding.NodeID, bool) {
		return n.book.Locate(sharding.MetaShard, r)
	})
	n.control.Open(cluster.ControlOptions{
		Self: n.id.Node, Version: telemetry.Version(), Name: n.cfg.ClusterName, Metadata: n.metadata,
		Blobs: n.modules, Prepare: n.prepareModule, AwaitBindings: n.bindings.await, ReadOnly: n.disk.readOnly.Load,
		Snapshot: n.raft.snapshot,
	})
	// Calls in flight are answered before what answers them is closed.
	n.closeLast("server", func(context.Context) error { return n.stopServer() })
	return nil
}

// leadershipMoved has the coordinator told at once.
func (n *Node) leadershipMoved() {
	if n.joined.Load() {
		n.member.Kick()
	}
}

// nodes lets the server find the leaders of shards and call them.
type nodes struct{ n *Node }

func (s nodes) Leader(shard sharding.ShardID) (node sharding.NodeID, self, known bool) {
	return s.n.leaders.Leader(shard)
}
func (s nodes) Quorum(shard sharding.ShardID) bool { return s.n.leaders.Quorum(shard) }
func (s nodes) Changed() <-chan struct{}           { return s.n.leaders.Changed() }
func (s nodes) Client(node sharding.NodeID) (client *http.Client, baseURL string, err error) {
	return s.n.peers.Client(node)
}

// requests is the router, which is made after the server.
type requests struct{ n *Node }

func (r requests) Submit(reqs []*entity.Request) { r.n.router.Submit(reqs) }

// follow keeps what is derived from the metadata up to it, and marks the node
// as caught up once it has the cluster's metadata and its modules.
func (n *Node) follow(ctx context.Context) {
	n.book.Follow(ctx, n.metadata, func(view *meta.View) {
		n.leaders.learn(view, n.id.Shards)
		if len(view.Members()) < 2 {
			return
		}
		err := n.remember(func(id *identity) bool {
			had := id.Several
			id.Several = true
			return !had
		})
		if err != nil {
			n.logger.Error("the identity was not written", "error", err)
		}
	})
}

// catchUp waits for the metadata and loads the modules that serve by it.
func (n *Node) catchUp(ctx context.Context) {
	if n.member.WaitFresh(ctx) != nil {
		return
	}
	if err := n.bindings.refresh(ctx); err != nil {
		n.logger.Error("not every active module could be loaded; its entity types are not served", "error", err)
	}
	n.caughtUp.Store(true)
}
