// Package memnet is an in-memory network for tests of whole clusters. Hosts
// listen and dial. A test can cut a link in one or both directions, delay or
// break it, and kill or freeze a host. Connections behave like TCP: data
// written over a cut link arrives after the link is healed, and the delay grows
// with the length of the cut, because TCP backs off between retransmissions. A
// dial over a cut link waits, and the kernel of a frozen host still accepts
// connections. The package works inside a testing/synctest bubble, on its
// clock.
//
// It never loses or reorders data within a connection, and starts no goroutine.
package memnet

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Network connects hosts. It is safe for concurrent use.
//
// One lock guards the state of all hosts, links and connections, and blocked
// calls wait on condition variables of that lock. This is what a synctest
// bubble requires: its clock advances only if every goroutine waits for
// something inside the bubble. A goroutine in Cond.Wait counts as waiting, but
// a goroutine that waits for a mutex or for a socket does not. That rules out
// real loopback connections, and net.Pipe has no buffer and no latency.
//
// A link is evaluated when data is read, not when it is written: segments stay
// in their pipe with an arrival time, and Read returns them only if the time has
// come and the link delivers. Cutting, healing, freezing and delaying therefore
// only change a few fields and wake all waiters, which evaluate their condition
// again. Timers for arrivals, deadlines and retransmissions also only wake
// waiters, so that no goroutine is needed to move data.
type Network struct {
	mu    sync.Mutex
	hosts map[string]*Host
	links map[[2]string]*link // links by source and destination
	conns map[*Conn]struct{}
	moved *sync.Cond // broadcast when something that a dial waits for changes
}

// link is one direction between two hosts.
type link struct {
	cut   bool
	since time.Time // start of the cut
	delay time.Duration
}

// maxRetry bounds the time between two retransmissions of TCP.
const maxRetry = 2 * time.Minute

// New returns a network without hosts.
func New() *Network {
	n := &Network{hosts: map[string]*Host{}, links: map[[2]string]*link{}, conns: map[*Conn]struct{}{}}
	n.moved = sync.NewCond(&n.mu)
	return n
}

// Host is one machine. It implements network.Network. Its name is the host part
// of its addresses.
type Host struct {
	net       *Network
	name      string
	listeners map[string]*listener // listeners by address
	port      int
	frozen    bool
	dead      bool // killed, and not listening again yet
}

// Host returns the host with a name, and creates it on the first call.
func (n *Network) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		h = &Host{net: n, name: name, listeners: map[string]*listener{}, port: 49152}
		n.hosts[name] = h
	}
	return h
}

// link returns the link from one host to another. The caller holds the lock.
func (n *Network) link(from, to string) *link {
	l := n.links[[2]string{from, to}]
	if l == nil {
		l = &link{}
		n.links[[2]string{from, to}] = l
	}
	return l
}

// wake wakes blocked readers, writers and dials after a change. The caller
// holds the lock.
func (n *Network) wake() {
	n.moved.Broadcast()
	for c := range n.conns {
		c.in.changed.Broadcast()
		c.out.changed.Broadcast()
	}
}

// held reports whether data from one host currently does not arrive at another.
// The caller holds the lock.
func (n *Network) held(from, to string) bool {
	return n.link(from, to).cut || n.hosts[from].frozen || n.hosts[to].frozen
}

func (n *Network) change(fn func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fn()
	n.wake()
}

// setCut cuts or heals a link. If data is waiting when the cut ends, the time
// until its next retransmission is as long as the cut was, because TCP doubles
// the time between retransmissions. The caller holds the lock.
func (n *Network) setCut(from, to string, cut bool) {
	l := n.link(from, to)
	if cut && !l.cut {
		l.since = time.Now()
	}
	if !cut && l.cut {
		wait := min(time.Since(l.since), maxRetry)
		for c := range n.conns {
			if c.in.from == from && c.in.to == to && (len(c.in.segments) > 0 || c.in.end != nil) {
				c.in.retryAt = time.Now().Add(wait)
				time.AfterFunc(wait, c.in.wake)
			}
		}
	}
	l.cut = cut
}

// Cut stops traffic from one host to another, in that direction only.
func (n *Network) Cut(from, to string) { n.change(func() { n.setCut(from, to, true) }) }

// Heal ends a Cut. Data written during the cut arrives after a further delay as
// long as the cut, at most two minutes. New connections are not delayed.
func (n *Network) Heal(from, to string) { n.change(func() { n.setCut(from, to, false) }) }

// Partition cuts the links between hosts of different groups in both
// directions, and heals the links within each group.
func (n *Network) Partition(groups ...[]string) {
	n.change(func() {
		for i, a := range groups {
			for j, b := range groups {
				for _, from := range a {
					for _, to := range b {
						n.setCut(from, to, i != j)
					}
				}
			}
		}
	})
}

// HealAll ends every cut.
func (n *Network) HealAll() {
	n.change(func() {
		for k := range n.links {
			n.setCut(k[0], k[1], false)
		}
	})
}

// Delay sets the latency from one host to another to d, for data sent from now
// on.
func (n *Network) Delay(from, to string, d time.Duration) {
	n.change(func() { n.link(from, to).delay = d })
}

// Break resets every connection between two hosts.
func (n *Network) Break(a, b string) {
	n.change(func() {
		for c := range n.conns {
			if c.in.from == a && c.in.to == b || c.in.from == b && c.in.to == a {
				c.reset()
			}
		}
	})
}

// Kill ends the host's process: it closes the listeners and resets the
// connections, which the other ends notice unless the link is cut. The host
// cannot dial until something listens on it again.
func (h *Host) Kill() {
	h.net.change(func() {
		h.dead = true
		for _, l := range h.listeners {
			l.close()
		}
		for c := range h.net.conns {
			if c.in.to == h.name {
				c.close(syscall.ECONNRESET)
			}
		}
	})
}

// Freeze stops the host like SIGSTOP: it sends and reads nothing, but its
// kernel still accepts connections. Unlike with SIGSTOP, its timers continue.
func (h *Host) Freeze() { h.net.change(func() { h.frozen = true }) }

// Thaw ends a Freeze.
func (h *Host) Thaw() { h.net.change(func() { h.frozen = false }) }

// Listen implements network.Network. An empty host part means this host.
func (h *Host) Listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host != "" && host != h.name {
		return nil, fmt.Errorf("memnet: %s is no address of %s: %w", address, h.name, syscall.EADDRNOTAVAIL)
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if port == "0" {
		h.port++
		port = strconv.Itoa(h.port)
	}
	address = net.JoinHostPort(h.name, port)
	if h.listeners[address] != nil {
		return nil, fmt.Errorf("memnet: listen %s: %w", address, syscall.EADDRINUSE)
	}
	h.dead = false
	l := &listener{host: h, address: addr(address)}
	h.listeners[address] = l
	return l, nil
}

// Dial implements network.Network.
func (h *Host) Dial(ctx context.Context, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n := h.net
	defer context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.moved.Broadcast()
	})()
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("memnet: dial %s: %w", address, ctx.Err())
		}
		target := n.hosts[host]
		switch {
		case h.dead:
			return nil, fmt.Errorf("memnet: dial %s: %w", address, syscall.ENETDOWN)
		case target == nil:
			return nil, fmt.Errorf("memnet: dial %s: %w", address, syscall.EHOSTUNREACH)
		case h.frozen || n.link(h.name, host).cut || n.link(host, h.name).cut:
		case target.listeners[address] == nil:
			return nil, fmt.Errorf("memnet: dial %s: %w", address, syscall.ECONNREFUSED)
		case len(target.listeners[address].backlog) < maxBacklog:
			return h.connect(target.listeners[address]), nil
		}
		n.moved.Wait()
	}
}

// connect creates a connection to a listener. The caller holds the lock.
func (h *Host) connect(l *listener) *Conn {
	h.port++
	from := addr(net.JoinHostPort(h.name, strconv.Itoa(h.port)))
	out, in := h.net.newPipe(h.name, l.host.name), h.net.newPipe(l.host.name, h.name)
	near := &Conn{net: h.net, in: in, out: out, local: from, remote: l.address}
	far := &Conn{net: h.net, in: out, out: in, local: l.address, remote: from}
	h.net.conns[near], h.net.conns[far] = struct{}{}, struct{}{}
	l.backlog = append(l.backlog, far)
	h.net.moved.Broadcast()
	return near
}

// maxBacklog bounds the connections of a listener that are not accepted yet. A
// dial waits for room.
const maxBacklog = 128

type listener struct {
	host    *Host
	address addr
	backlog []*Conn
	closed  bool
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	n := l.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if l.closed {
			return nil, net.ErrClosed
		}
		if len(l.backlog) > 0 && !l.host.frozen {
			conn := l.backlog[0]
			l.backlog = l.backlog[1:]
			n.moved.Broadcast()
			return conn, nil
		}
		n.moved.Wait()
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	n := l.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.close()
	n.moved.Broadcast()
	return nil
}

// close closes the listener and resets the connections in its backlog. The
// caller holds the lock.
func (l *listener) close() {
	l.closed = true
	delete(l.host.listeners, string(l.address))
	for _, c := range l.backlog {
		c.close(syscall.ECONNRESET)
	}
	l.backlog = nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.address }

type addr string

func (a addr) Network() string { return "tcp" }
func (a addr) String() string  { return string(a) }
