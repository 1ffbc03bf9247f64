package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/forward"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/services"
)

// ports holds the node's listeners and the server behind them.
type ports struct {
	cfg     *config.Config
	clients listener
	peers   listener
	health  net.Listener // nil if there is no separate listener
	links   *peer.Peers
	server  *services.Server

	forwarded     afterJoining    // serves requests that other nodes forward
	backups       afterJoining    // serves exports and imports of other nodes
	forwardServer *forward.Server // nil before it is open
	stop          func() error
}

// listener is the listener for clients or for nodes. Its gossip half receives
// gossip connections; the clients' listener needs it only while other nodes may
// know no other address of this node.
type listener struct {
	http   net.Listener
	gossip net.Listener
}

// afterJoining answers other nodes only after this node has joined a cluster
// and its parts are open.
type afterJoining struct {
	joined  *atomic.Bool
	handler http.Handler
}

func (h *afterJoining) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.joined.Load() {
		http.Error(w, errJoining.Error(), http.StatusServiceUnavailable)
		return
	}
	h.handler.ServeHTTP(w, r)
}

func newPorts(cfg *config.Config, joined *atomic.Bool) *ports {
	return &ports{cfg: cfg, forwarded: afterJoining{joined: joined}, backups: afterJoining{joined: joined}}
}

// ClientAddress and PeerAddress return the addresses at which clients and other
// nodes reach this node.
func (p *ports) ClientAddress() string { return p.cfg.Addr(p.clients.http.Addr()) }
func (p *ports) PeerAddress() string   { return p.cfg.PeerAddr(p.peers.http.Addr()) }

// listen opens the listener for clients, and then the listener for nodes, on
// the first address from peers that is not in use. If secured is set, it
// does the TLS handshakes of other nodes. If health is "", there is no
// separate listener for health checks.
func (p *ports) listen(on network.Network, clients, health string, peers func(clients net.Addr) []string, secured *certs.Peers) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close(context.Background()))
		}
	}()
	if health != "" {
		if p.health, err = on.Listen(health); err != nil {
			return fmt.Errorf("health checks (set health-listen): %w", err)
		}
	}
	l, err := on.Listen(clients)
	if err != nil {
		return err
	}
	p.clients.http, p.clients.gossip = network.Split(l)
	addresses := peers(l.Addr())
	for i, address := range addresses {
		l, err = on.Listen(address)
		if err == nil {
			if secured != nil {
				p.peers.http, p.peers.gossip = network.SplitOver(l, secured.Accept)
			} else {
				p.peers.http, p.peers.gossip = network.Split(l)
			}
			return nil
		}
		if i+1 == len(addresses) || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return fmt.Errorf("peer listener (set peer-listen): %w", err)
}

func (l *listener) close() error {
	if l.http == nil {
		return nil // never opened
	}
	return errors.Join(l.http.Close(), l.gossip.Close())
}

// close closes the listeners.
func (p *ports) close(context.Context) error {
	errs := []error{p.clients.close(), p.peers.close()}
	if p.health != nil {
		if err := p.health.Close(); !errors.Is(err, net.ErrClosed) { // the server may have closed it already
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// serve starts to answer calls. It calls failed if a listener stops without
// having been closed. within bounds how long stop waits for calls in flight.
func (p *ports) serve(within time.Duration, failed func(error)) {
	faces := []func() error{
		func() error { return p.server.Serve(p.clients.http) },
		func() error { return p.server.ServePeers(p.peers.http) },
	}
	if p.health != nil {
		faces = append(faces, func() error { return p.server.ServeHealth(p.health) })
	}
	served := make(chan error, len(faces))
	for _, serve := range faces {
		go func() {
			err := serve()
			failed(err)
			served <- err
		}()
	}
	p.stop = sync.OnceValue(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		errs := []error{p.links.Close(ctx)}
		if p.forwardServer != nil {
			errs = append(errs, p.forwardServer.Close(ctx))
		}
		errs = append(errs, p.server.Shutdown(ctx))
		for range faces {
			errs = append(errs, <-served)
		}
		return errors.Join(errs...)
	})
}

// part stops serving other nodes on the clients' listener.
func (p *ports) part() {
	_ = p.clients.gossip.Close()
	p.server.Part()
}

// sever closes the listeners and all connections at once, without waiting for
// calls in flight.
func (p *ports) sever() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.close(now)
	_ = p.links.Close(now)
	p.server.Cut()
}
