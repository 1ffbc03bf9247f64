package memnet

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// pipeBytes is the buffer size of one direction of a connection. Writes beyond
// this size block, as with TCP. The size is greater than the amount of data
// that HTTP/2 flow control allows in flight. Go's HTTP/2 implementation writes
// while it holds a mutex, and the clock of a synctest bubble does not advance
// while a goroutine waits for a mutex.
const pipeBytes = 16 << 20

// pipe is one direction of a connection. Its fields are guarded by the lock of
// the network.
type pipe struct {
	net      *Network
	from, to string
	changed  *sync.Cond

	segments []segment
	size     int
	end      error // returned to the reader after the last segment; set when the writer has closed
	endAt    time.Time
	gone     bool      // the reader has closed
	broken   bool      // the connection was reset, so reads and writes fail
	retryAt  time.Time // nothing arrives earlier; set when a cut ends

	readBy, writeBy deadline
}

// segment is data in flight.
type segment struct {
	data []byte
	at   time.Time // time of arrival
}

// deadline wakes the waiters of a pipe when it expires.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// set changes the deadline. The caller holds the lock.
func (d *deadline) set(p *pipe, at time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if wait := time.Until(at); !at.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, p.wake)
	}
	p.changed.Broadcast()
}

func (n *Network) newPipe(from, to string) *pipe {
	return &pipe{net: n, from: from, to: to, changed: sync.NewCond(&n.mu)}
}

func (p *pipe) wake() {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	p.changed.Broadcast()
}

// arrival returns the arrival time of data sent now and schedules a wake-up of
// the reader.
func (p *pipe) arrival() time.Time {
	delay := p.net.link(p.from, p.to).delay
	if delay > 0 {
		time.AfterFunc(delay, p.wake)
	}
	return time.Now().Add(delay)
}

func (p *pipe) arrived(at time.Time) bool {
	now := time.Now()
	return !p.net.held(p.from, p.to) && !now.Before(at) && !now.Before(p.retryAt)
}

// Conn is one end of a connection.
type Conn struct {
	net           *Network
	in, out       *pipe
	local, remote addr
	closed        bool
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	p := c.in
	for {
		switch {
		case c.closed:
			return 0, c.fault("read", net.ErrClosed)
		case p.broken:
			return 0, c.fault("read", syscall.ECONNRESET)
		case p.readBy.passed():
			return 0, c.fault("read", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return 0, nil
		case len(p.segments) > 0 && p.arrived(p.segments[0].at):
			return p.take(b), nil
		case len(p.segments) == 0 && p.end != nil && p.arrived(p.endAt):
			if errors.Is(p.end, io.EOF) {
				return 0, io.EOF
			}
			return 0, c.fault("read", p.end)
		}
		p.changed.Wait()
	}
}

// take moves arrived data into b.
func (p *pipe) take(b []byte) (n int) {
	for n < len(b) && len(p.segments) > 0 && p.arrived(p.segments[0].at) {
		s := &p.segments[0]
		copied := copy(b[n:], s.data)
		n += copied
		if s.data = s.data[copied:]; len(s.data) == 0 {
			p.segments[0] = segment{}
			p.segments = p.segments[1:]
		}
	}
	p.size -= n
	p.changed.Broadcast()
	return n
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (written int, err error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	p := c.out
	for {
		switch {
		case c.closed:
			return written, c.fault("write", net.ErrClosed)
		case p.broken || p.gone && !c.net.held(p.to, p.from):
			return written, c.fault("write", syscall.ECONNRESET)
		case p.writeBy.passed():
			return written, c.fault("write", os.ErrDeadlineExceeded)
		case written == len(b):
			return written, nil
		case p.size < pipeBytes:
			n := min(len(b)-written, pipeBytes-p.size)
			p.segments = append(p.segments, segment{append([]byte(nil), b[written:written+n]...), p.arrival()})
			p.size += n
			written += n
			p.changed.Broadcast()
			continue
		}
		p.changed.Wait()
	}
}

func (c *Conn) fault(op string, err error) error {
	return &net.OpError{Op: op, Net: "mem", Source: c.local, Addr: c.remote, Err: err}
}

// Close implements net.Conn. Data already written still arrives.
func (c *Conn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return c.fault("close", net.ErrClosed)
	}
	c.close(io.EOF)
	return nil
}

// close closes the connection. After all data, reads of the other end return
// the error end. The caller holds the lock.
func (c *Conn) close(end error) {
	if c.closed {
		return
	}
	c.closed = true
	c.in.gone = true
	c.in.segments, c.in.size = nil, 0
	if c.out.end == nil {
		c.out.end, c.out.endAt = end, c.out.arrival()
	}
	c.in.readBy.set(c.in, time.Time{})
	c.out.writeBy.set(c.out, time.Time{})
	delete(c.net.conns, c)
}

// reset breaks the connection at both ends. The caller holds the lock.
func (c *Conn) reset() {
	for _, p := range []*pipe{c.in, c.out} {
		p.broken = true
		p.changed.Broadcast()
	}
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(c.in, &c.in.readBy, t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(c.out, &c.out.writeBy, t) }

func (c *Conn) setDeadline(p *pipe, d *deadline, t time.Time) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return c.fault("set", net.ErrClosed)
	}
	d.set(p, t)
	return nil
}
