package membership

import (
	"bufio"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"
)

// Limits of the connections that carry packets.
const (
	// maxLinks limits the number of targets; packets to further targets are
	// dropped.
	maxLinks = 1024
	// maxQueued limits the packets queued per target; further packets are dropped.
	maxQueued = 64
	// linkAge is the time for which a connection is used. Packets stuck in a
	// connection during a network outage can be delayed by a minute, because
	// TCP backs off its retransmissions; a new connection does not have this
	// delay.
	linkAge = 15 * time.Second
	// linkIdle is the idle timeout at the sender; the receiver waits twice as
	// long.
	linkIdle = 30 * time.Second
)

// packetLink sends packets to one target.
type packetLink struct {
	address string
	queue   chan []byte
}

// send queues or drops a packet. The transport takes ownership of it.
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

// runLink sends the packets for one target until none arrive for linkIdle.
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

// retire removes a link that has nothing to send.
func (t *transport) retire(l *packetLink) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(l.queue) > 0 {
		return false
	}
	delete(t.links, l.address)
	return true
}

// sendOver opens a connection and sends the packet and the following ones until
// the connection fails, is too old or the transport shuts down. If the
// connection cannot be opened, all queued packets are dropped, because an
// outdated probe is useless.
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

// sender is the address that the sender of a packet connection gave for
// answers.
type sender string

func (s sender) Network() string { return "tcp" }
func (s sender) String() string  { return string(s) }

// receive passes on the packets of a connection until it ends.
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
