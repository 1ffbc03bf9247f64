package network

import (
	"context"
	"errors"
	"net"
	"sync"
)

// Gossip is the gossip side of a node's listeners. The membership layer listens
// and dials with it.
type Gossip struct {
	network   Network
	locate    func(address string) string
	listeners []net.Listener
	accepted  chan net.Conn
	closed    chan struct{}
	failed    chan struct{} // closed when no listener accepts any more
	once      sync.Once
	tasks     sync.WaitGroup

	mu  sync.Mutex
	err error // error of the last listener that failed
}

// NewGossip dials over n and accepts from gossip listeners of Split, which it
// then owns. If one of these listeners is closed earlier, the other
// listeners continue. locate, if not nil, maps an address announced in
// gossip to the address that receives gossip; it must not block.
func NewGossip(n Network, locate func(address string) string, gossip ...net.Listener) *Gossip {
	if locate == nil {
		locate = func(address string) string { return address }
	}
	g := &Gossip{network: n, locate: locate, listeners: gossip, accepted: make(chan net.Conn), closed: make(chan struct{}), failed: make(chan struct{})}
	var accepting sync.WaitGroup
	for _, l := range gossip {
		accepting.Go(func() { g.accept(l) })
	}
	g.tasks.Go(func() {
		accepting.Wait()
		close(g.failed)
	})
	return g
}

func (g *Gossip) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			g.mu.Lock()
			g.err = err
			g.mu.Unlock()
			return
		}
		select {
		case g.accepted <- conn:
		case <-g.closed:
			conn.Close()
		}
	}
}

// Accept returns the next gossip connection, without its preface.
func (g *Gossip) Accept() (net.Conn, error) {
	select {
	case conn := <-g.accepted:
		return conn, nil
	case <-g.closed:
		return nil, net.ErrClosed
	case <-g.failed:
		g.mu.Lock()
		defer g.mu.Unlock()
		return nil, g.err
	}
}

// Dial connects to the gossip side of another node's listener.
func (g *Gossip) Dial(ctx context.Context, address string) (net.Conn, error) {
	return DialGossip(ctx, g.network, g.locate(address))
}

// Addr returns the address of the first listener.
func (g *Gossip) Addr() net.Addr { return g.listeners[0].Addr() }

// Close closes the listeners and joins the goroutines that accept from them.
func (g *Gossip) Close() error {
	var err error
	g.once.Do(func() {
		close(g.closed)
		for _, l := range g.listeners {
			err = errors.Join(err, l.Close())
		}
		g.tasks.Wait()
	})
	return err
}
