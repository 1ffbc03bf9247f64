package network

import (
	"context"
	"net"
)

// Gossip is the gossip half of a node's port: what membership listens and
// dials with.
type Gossip struct {
	network  Network
	listener net.Listener
}

// NewGossip dials over n and accepts from the gossip listener of a Split.
func NewGossip(n Network, gossip net.Listener) *Gossip { return &Gossip{n, gossip} }

// Accept returns the next gossip connection, without its preface.
func (g *Gossip) Accept() (net.Conn, error) { return g.listener.Accept() }

// Dial connects to the gossip half of another node's port.
func (g *Gossip) Dial(ctx context.Context, address string) (net.Conn, error) {
	return DialGossip(ctx, g.network, address)
}

// Addr is the address that the node listens on.
func (g *Gossip) Addr() net.Addr { return g.listener.Addr() }

// Close closes the listener.
func (g *Gossip) Close() error { return g.listener.Close() }
