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

// A process that ends takes its sockets along: its kernel closes its
// connections and refuses others, which shows at once what silence shows later.
// A node seems to have ended when all of this holds:
//
//   - the link to it was closed by the other side, not by this one and not for
//     want of an answer;
//   - since then a dial of the same address was refused;
//   - no link from it is open, as one would be of a process that only listens no
//     more.
//
// A process that is stopped keeps its connections, one behind a cut network
// refuses nothing, and what another process listens on accepts: they are found
// by their silence. A firewall that resets and refuses looks like an end, so
// what follows from one must be right for a node that lives, too.
type ending struct {
	// closed is the dialed address of the last link that the other side closed;
	// "" where the node has answered since. That a kernel accepts says nothing: it
	// does so until it comes to the listener of a process that has ended.
	closed  string
	refused bool // a dial of it, since
}

// endings is the network of a link, which notes what its kernel says.
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
		e.link.peer.refusedAt(address)
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

// NetConn is what the connection lies on.
func (c *endingConn) NetConn() net.Conn { return c.Conn }

// closedByOther says whether an error of a connection is the word of the other
// side's kernel. A deadline, a connection closed here, and one given up because
// nothing came back for long are none.
func closedByOther(err error) bool {
	for _, word := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, word) {
			return true
		}
	}
	return false
}

// closedAt follows the end of a link that had been answered.
func (q *peer) closedAt(address string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ending = ending{closed: address}
}

// answers follows the first word on a link.
func (q *peer) answers() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ending = ending{}
}

// refusedAt follows a dial that was refused.
func (q *peer) refusedAt(address string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ending.closed == address {
		q.ending.refused = true
		q.consider()
	}
}

// consider has the node looked at where its process seems to have ended. It is
// called with mu held.
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
