package membership

import (
	"bufio"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"
)

// Bounds of the connections that carry packets.
const (
	// maxLinks bounds the targets that packets go to; those to more are lost.
	maxLinks = 1024
	// maxQueued bounds the packets that wait for one target; more are lost.
	maxQueued = 64
	// linkAge is how long a connection serves. What stood in one while the
	// network was cut can be a minute late, because TCP retries ever slower; a
	// new connection is not.
	linkAge = 15 * time.Second
	// linkIdle closes the sender's end; the receiver's waits twice as long.
	linkIdle = 30 * time.Second
)

// packetLink is the packets to one target.
type packetLink struct {
	address string
	queue   chan []byte
}

// send queues a packet, or loses it. The packet becomes the transport's.
func (t *transport) send(address string, packet []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	l := t.links[address]
	if l == nil {
		if len(t.links) >= maxLinks {
			return
		}
		l = &packetLink{address: address, queue: make(chan []byte, maxQueued)}
		t.links[address] = l
		t.tasks.Go(func() { t.runLink(l) })
	}
	select {
	case l.queue <- packet:
	default:
	}
}

// runLink sends the packets to one target until none come for linkIdle.
func (t *transport) runLink(l *packetLink) {
	idle := time.NewTimer(linkIdle)
	defer idle.Stop()
	for {
		select {
		case packet := <-l.queue:
			t.sendOver(l, packet)
			idle.Reset(linkIdle)
		case <-idle.C:
			if t.retire(l) {
				return
			}
			idle.Reset(linkIdle)
		case <-t.ctx.Done():
			return
		}
	}
}

// retire forgets a link that has nothing to send.
func (t *transport) retire(l *packetLink) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(l.queue) > 0 {
		return false
	}
	delete(t.links, l.address)
	return true
}

// sendOver makes a connection, and sends the packet and what follows it, until
// the connection fails, is old, or idle. What was queued while it could not be
// made is lost with it: an old probe helps nobody.
func (t *transport) sendOver(l *packetLink, packet []byte) {
	conn, err := t.dial(l.address, kindPackets, streamTimeout)
	if err != nil {
		for len(l.queue) > 0 {
			<-l.queue
		}
		return
	}
	defer conn.Close()
	old := time.NewTimer(linkAge)
	defer old.Stop()
	w := bufio.NewWriterSize(conn, 16<<10)
	buffer := appendSized(nil, net.JoinHostPort(t.ip.String(), strconv.Itoa(t.portNum)))
	for {
		buffer = appendSized(buffer, packet)
		conn.SetWriteDeadline(time.Now().Add(streamTimeout))
		if _, err := w.Write(buffer); err != nil {
			return
		}
		buffer = buffer[:0]
		if len(l.queue) == 0 && w.Flush() != nil {
			return
		}
		select {
		case packet = <-l.queue:
		case <-old.C:
			w.Flush()
			return
		case <-t.ctx.Done():
			return
		}
	}
}

// sender is the address that the packets of a connection come from, as their
// sender gave it: where answers go to.
type sender string

func (s sender) Network() string { return "tcp" }
func (s sender) String() string  { return string(s) }

// receive hands the packets of a connection on until it ends.
func (t *transport) receive(conn net.Conn) {
	r := bufio.NewReaderSize(conn, 16<<10)
	conn.SetReadDeadline(time.Now().Add(kindTimeout))
	from, err := readSized(r)
	if err != nil || checkAddress(string(from)) != nil {
		return
	}
	for {
		conn.SetReadDeadline(time.Now().Add(2 * linkIdle))
		packet, err := readSized(r)
		if err != nil {
			return
		}
		if !t.sealed && !acceptsPacket(packet) {
			continue
		}
		select {
		case t.packets <- &memberlist.Packet{Buf: packet, From: sender(from), Timestamp: time.Now()}:
		case <-t.ctx.Done():
			return
		}
	}
}
