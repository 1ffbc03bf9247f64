package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/rpc"
)

// ports are the node's listeners, with the server that answers on them.
type ports struct {
	clients listener
	peers   listener
	health  net.Listener // nil: none
	links   *peer.Peers
	server  *rpc.Server

	forwarded      afterJoining // what other nodes forward
	backups        afterJoining // other nodes' exports and imports
	closeForwarded func(context.Context) error
	stop           func() error
}

// listener is one of the first two. Gossip has one half of it: of the clients'
// only while other nodes may know the node by that alone.
type listener struct {
	http   net.Listener
	gossip net.Listener
}

// afterJoining answers other nodes once this one belongs to a cluster, and its
// parts are open.
type afterJoining struct {
	joined  func() bool
	handler http.Handler
}

func (h *afterJoining) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.joined() {
		http.Error(w, errJoining.Error(), http.StatusServiceUnavailable)
		return
	}
	h.handler.ServeHTTP(w, r)
}

func newPorts(joined func() bool) *ports {
	return &ports{forwarded: afterJoining{joined: joined}, backups: afterJoining{joined: joined}}
}

// listen opens the clients' listener, and the peers' on the first address of
// those that peers names which is not taken. secured, where it is not nil,
// makes the handshakes of other nodes. health may be empty.
func (p *ports) listen(on network.Network, clients, health string, peers func(clients net.Addr) []string, secured *certs.Peers) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close(context.Background()))
		}
	}()
	if health != "" {
		if p.health, err = on.Listen(health); err != nil {
			return fmt.Errorf("for health, see health-listen: %w", err)
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
	return fmt.Errorf("for other nodes, see peer-listen: %w", err)
}

func (l *listener) close() error {
	if l.http == nil {
		return nil // it was not opened
	}
	return errors.Join(l.http.Close(), l.gossip.Close())
}

// close ends the listeners.
func (p *ports) close(context.Context) error {
	errs := []error{p.clients.close(), p.peers.close()}
	if p.health != nil {
		if err := p.health.Close(); !errors.Is(err, net.ErrClosed) { // by the server, which serves it
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// serve begins to answer. failed is told when a listener is gone though nobody
// closed it; within bounds how long stop waits for calls in flight.
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
		if p.closeForwarded != nil {
			errs = append(errs, p.closeForwarded(ctx))
		}
		errs = append(errs, p.server.Shutdown(ctx))
		for range faces {
			errs = append(errs, <-served)
		}
		return errors.Join(errs...)
	})
}

// part ends what other nodes have on the clients' listener.
func (p *ports) part() {
	_ = p.clients.gossip.Close()
	p.server.Part()
}

// sever closes the listeners and every connection at once.
func (p *ports) sever() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.close(now)
	_ = p.links.Close(now)
	p.server.Cut()
}
