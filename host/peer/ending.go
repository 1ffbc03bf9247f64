package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/hostd/hostd/host/network"
)

// ending detects that a peer's process has ended, before the failure detector
// suspects the node. When a process ends, its kernel closes its connections
// and refuses new connections. A node seems to have ended if all of this
// holds:
//
//   - the link to it was closed by the other side, and not by this node or
//     because of a timeout;
//   - since then a dial of the same address was refused;
//   - no link from the node is open; a process that only stopped listening
//     would keep its link open.
//
// A stopped process keeps its connections, a node behind a partition refuses
// nothing, and an address on which another process listens accepts; these are
// found by the failure detector. A firewall that resets and refuses connections
// looks like an ended process, so the reaction to an end must be correct for a
// live node too.
type ending struct {
	// closed is the dialed address of the last link that the other side closed,
	// or "" if the node has answered after that. An accepted connection is
	// no answer, because a kernel accepts connections until the ended
	// process's listener is closed.
	closed  string
	refused bool // a dial of closed was refused since then
}

// endings wraps the network of a link and records how the link's connections
// and dials end.
type endings struct {
	network.Network
	link *outbound
}

// Dial implements network.Network.
func (e endings) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := e.Network.Dial(ctx, address)
	if err == nil {
		return &endingConn{Conn: conn, link: e.link, address: address}, nil
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		e.link.peer.rejectedAt(address)
	}
	return nil, err
}

// endingConn is the connection of a link.
type endingConn struct {
	net.Conn
	link    *outbound
	address string
	ended   atomic.Bool
}

// Read implements net.Conn.
func (c *endingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.note(err)
	return n, err
}

// Write implements net.Conn.
func (c *endingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.note(err)
	return n, err
}

func (c *endingConn) note(err error) {
	if err != nil && closedByOther(err) && !c.ended.Swap(true) && c.link.answered.Load() {
		c.link.peer.closedAt(c.address)
	}
}

// NetConn returns the underlying connection.
func (c *endingConn) NetConn() net.Conn { return c.Conn }

// closedByOther reports whether the other side's kernel caused an error. A
// deadline, a connection closed on this side, and a timeout after missing
// answers do not count.
func closedByOther(err error) bool {
	for _, word := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, word) {
			return true
		}
	}
	return false
}

// closedAt is called at the end of a link that had been answered.
func (q *peer) closedAt(address string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ending = ending{closed: address}
}

// answers is called when the node first answers on a link.
func (q *peer) answers() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ending = ending{}
}

// rejectedAt is called when a dial was refused.
func (q *peer) rejectedAt(address string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ending.closed == address {
		q.ending.refused = true
		q.consider()
	}
}

// consider checks whether the node's process seems to have ended, and if so
// makes the failure detector look at it. q.mu must be held.
func (q *peer) consider() {
	if !q.ending.refused || q.inbound != nil {
		return
	}
	q.signs.End()
	select {
	case q.owner.noticed <- struct{}{}:
	default:
	}
}
