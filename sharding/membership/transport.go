package membership

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Limits of the transport.
const (
	// streamTimeout is the timeout for dialing, and for reads and writes of a
	// stream.
	streamTimeout = 3 * time.Second
	// kindTimeout limits the time in which a new connection must send its kind.
	kindTimeout = 5 * time.Second
	// maxConns limits inbound connections; excess connections are closed.
	maxConns = 1024
	// maxPacketBytes is the largest length that fits into two bytes;
	// memberlist's packets are much smaller.
	maxPacketBytes = 1<<16 - 1
)

// The first byte of a connection, its kind.
const (
	kindPackets = 'p'
	kindStream  = 's'
)

// transport carries memberlist's packets and streams over connections of the
// node's port. Packets use one connection per target and direction and, like
// UDP, are dropped if they cannot be sent immediately.
type transport struct {
	port    Transport
	logger  *slog.Logger
	ip      net.IP
	portNum int
	sealed  bool // gossip is encrypted
	// locate returns the address with a host name that a node has announced, by
	// its name in memberlist, or "". It may be nil.
	locate  func(name string) string
	packets chan *memberlist.Packet
	streams chan net.Conn
	ctx     context.Context // canceled by Shutdown
	cancel  context.CancelFunc
	tasks   sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	conns     map[*trackedConn]struct{}
	inbound   int
	inStreams int
	links     map[string]*packetLink // links by address
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

func newTransport(port Transport, logger *slog.Logger, ip net.IP, portNum int, sealed bool) *transport {
	t := &transport{
		sealed: sealed,
		port:   port, logger: logger, ip: ip, portNum: portNum,
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		conns: map[*trackedConn]struct{}{}, links: map[string]*packetLink{},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.tasks.Go(t.accept)
	return t
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.ip, t.portNum, nil
}

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// WriteTo implements memberlist.Transport. A packet that cannot be sent is
// dropped without an error.
func (t *transport) WriteTo(b []byte, address string) (time.Time, error) {
	now := time.Now()
	if len(b) > maxPacketBytes {
		return now, fmt.Errorf("packet too large: %d bytes", len(b))
	}
	t.send(address, append([]byte(nil), b...))
	return now, nil
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, t.target(a))
}

// target returns the address to connect to. A node that has announced a host
// name is reached by that name instead of the IP address in the gossip. The
// node resolved its IP address once, at its start, and that address may be
// wrong from the beginning, because name servers may still have returned the
// address of the pod's predecessor.
func (t *transport) target(a memberlist.Address) string {
	if t.locate != nil {
		if address := t.locate(a.Name); address != "" {
			return address
		}
	}
	return a.Addr
}

// DialTimeout implements memberlist.Transport.
func (t *transport) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	conn, err := t.dial(address, kindStream, timeout)
	if err != nil {
		return nil, err
	}
	return &guardedReply{Conn: conn}, nil
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(t.target(a), timeout)
}

// Shutdown implements memberlist.Transport. It closes all connections and waits
// for the goroutines.
func (t *transport) Shutdown() error {
	t.mu.Lock()
	t.closed = true
	open := make([]*trackedConn, 0, len(t.conns))
	for c := range t.conns {
		open = append(open, c)
	}
	t.mu.Unlock()
	t.cancel()
	err := t.port.Close()
	for _, c := range open {
		c.Close()
	}
	t.tasks.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// dial opens a connection of a kind.
func (t *transport) dial(address string, kind byte, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	conn, err := t.port.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	c, err := t.track(conn, false)
	if err != nil {
		return nil, err
	}
	c.SetWriteDeadline(time.Now().Add(timeout))
	if _, err := c.Write([]byte{kind}); err != nil {
		c.Close()
		return nil, err
	}
	c.SetWriteDeadline(time.Time{})
	return c, nil
}

// trackedConn is a connection that Shutdown closes.
type trackedConn struct {
	net.Conn
	owner   *transport
	inbound bool
	stream  bool // counted in inStreams
}

// track registers a connection. If that is not possible, it closes it.
func (t *transport) track(conn net.Conn, inbound bool) (*trackedConn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || inbound && t.inbound >= maxConns {
		conn.Close()
		return nil, ErrClosed
	}
	c := &trackedConn{Conn: conn, owner: t, inbound: inbound}
	t.conns[c] = struct{}{}
	if inbound {
		t.inbound++
	}
	return c, nil
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	t := c.owner
	t.mu.Lock()
	if _, open := t.conns[c]; open {
		delete(t.conns, c)
		if c.inbound {
			t.inbound--
		}
		if c.stream {
			t.inStreams--
		}
	}
	t.mu.Unlock()
	return c.Conn.Close()
}

// accept accepts connections until the port is closed.
func (t *transport) accept() {
	for {
		conn, err := t.port.Accept()
		if err != nil {
			if t.ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				t.logger.Error("stopped accepting gossip connections", "error", err)
			}
			return
		}
		if c, err := t.track(conn, true); err == nil {
			t.tasks.Go(func() { t.serve(c) })
		}
	}
}

// serve reads the kind of a connection and handles it.
func (t *transport) serve(c *trackedConn) {
	var kind [1]byte
	c.SetReadDeadline(time.Now().Add(kindTimeout))
	if _, err := io.ReadFull(c, kind[:]); err != nil {
		c.Close()
		return
	}
	switch kind[0] {
	case kindStream:
		t.serveStream(c)
	case kindPackets:
		t.receive(c)
		c.Close()
	default:
		c.Close()
	}
}

// serveStream passes a stream to memberlist if it passes inspection.
func (t *transport) serveStream(c *trackedConn) {
	if !t.enterStream(c) {
		c.Close()
		return
	}
	conn, err := guard(c)
	if err != nil {
		t.logger.Debug("rejected a gossip stream", "remote", c.RemoteAddr().String(), "error", err)
		c.Close()
		return
	}
	c.SetReadDeadline(time.Time{})
	select {
	case t.streams <- conn: // memberlist closes the stream
	case <-t.ctx.Done():
		c.Close()
	}
}

// enterStream counts a stream until it is closed.
func (t *transport) enterStream(c *trackedConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inStreams >= maxStreams || t.closed {
		return false
	}
	t.inStreams++
	c.stream = true
	return true
}

// readSized reads a byte string with a 2-byte length prefix.
func readSized(r io.Reader) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(head[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

func appendSized[T string | []byte](dst []byte, b T) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(b))), b...)
}
