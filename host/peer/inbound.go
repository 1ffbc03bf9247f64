package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
)

// served is a call of another node that is being served.
type served struct {
	hello Hello
	peer  *peer // nil for calls that anyone may make, such as Probe
	body  *observedBody
	ended atomic.Bool // the call was aborted, so bytes that still arrive are ignored

	cancel context.CancelFunc // cancels the call's context

	// controller must not be used after the handler has returned. mu is held
	// during its calls, which set a deadline and do not wait.
	mu         sync.Mutex
	controller *http.ResponseController
}

type servedKey struct{}

func servedOf(ctx context.Context) *served {
	s, _ := ctx.Value(servedKey{}).(*served)
	return s
}

// abort makes reads and writes of the call fail, including those in progress.
func (s *served) abort() {
	s.ended.Store(true)
	s.deadline(time.Unix(1, 0))
	s.cancel()
}

// lift removes the server's timeouts from a long call.
func (s *served) lift() { s.deadline(time.Time{}) }

func (s *served) deadline(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.controller != nil {
		s.controller.SetReadDeadline(t)
		s.controller.SetWriteDeadline(t)
	}
}

// observedBody is a body from another node. Each read that brings bytes is a sign
// of life.
type observedBody struct {
	io.ReadCloser
	peer  *peer
	of    *served // call whose body it is; nil for an answer
	bytes atomic.Uint64
}

// Read implements io.Reader. After the call was aborted, Read fails, even if
// the handler has set a new deadline in the meantime.
func (b *observedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.of != nil && b.of.ended.Load() {
		return 0, ErrUnavailable
	}
	if n > 0 {
		b.bytes.Add(uint64(n))
		b.peer.touch()
	}
	return n, err
}

// enter registers a stream, so that Close ends it and waits for it.
func (p *Peers) enter(s *served) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	p.served[s] = struct{}{}
	p.active.Add(1)
	return nil
}

func (p *Peers) leave(s *served) {
	p.mu.Lock()
	delete(p.served, s)
	p.mu.Unlock()
	p.active.Done()
}

// linkStream is the serving side of a link's stream. Receive fills a *batch,
// and Send sends an *echo. The two may be called concurrently.
type linkStream interface {
	Receive(message any) error
	Send(message any) error
}

// link serves a link over HTTP/2.
func (p *Peers) link(ctx context.Context, stream *connect.BidiStream[batch, echo]) error {
	s := servedOf(ctx)
	end, err := p.beginLink(s, stream.RequestHeader())
	if err == nil {
		defer end()
		err = p.serveLink(s, stream.Conn())
	}
	return p.encodeError(err)
}

// beginLink makes the call the link from its node. A node has one link to
// this node; a new link ends the previous link. Call end when the link has
// ended.
func (p *Peers) beginLink(s *served, header http.Header) (end func(), err error) {
	if err := p.enter(s); err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(header.Get(headerLink), 10, 64)
	if err != nil {
		err = fmt.Errorf("%w: the connection has no number", ErrFormat)
	} else if number > mostLinks(s.hello.Incarnation, p.opts.Wall()) {
		err = fmt.Errorf("%w: the number of the connection is too high", ErrFormat)
	} else {
		err = s.peer.replace(s, number)
	}
	if err != nil {
		p.leave(s)
		return nil, err
	}
	s.lift()
	if s.ended.Load() { // aborted between enter and lift, which removed the deadlines
		s.deadline(time.Unix(1, 0))
		s.peer.endLink(s)
		p.leave(s)
		return nil, errClosed
	}
	return func() {
		s.peer.endLink(s)
		p.leave(s)
	}, nil
}

// serveLink serves a link until it ends, and returns why. Its goroutine
// reads frames, and a second goroutine sends heartbeats.
func (p *Peers) serveLink(s *served, stream linkStream) error {
	var heard atomic.Pointer[arrivedHeartbeat] // the last heartbeat that arrived
	heard.Store(&arrivedHeartbeat{})
	stop := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() { p.sendHeartbeats(stream, s, &heard, stop) })
	err := p.receive(stream, s, &heard)
	s.abort()
	close(stop)
	beating.Wait()
	return err
}

// receive passes frames on until the stream ends. The end is always an error
// for the other side, so that the other side makes a new link.
func (p *Peers) receive(stream linkStream, s *served, heard *atomic.Pointer[arrivedHeartbeat]) error {
	var b batch
	for {
		if err := stream.Receive(&b); err != nil {
			if s.ended.Load() {
				return ErrUnavailable
			}
			return errors.Join(ErrUnavailable, err)
		}
		if s.ended.Load() {
			return ErrUnavailable
		}
		if b.heartbeat != 0 {
			heard.Store(&arrivedHeartbeat{b.heartbeat, p.now()})
			s.peer.noteTurns(b.turns)
		}
		bytes := 0
		for _, f := range b.frames {
			bytes += len(f)
			p.opts.Raft.Receive(s.peer.id, f)
		}
		s.peer.received.add(len(b.frames), bytes)
	}
}

// sendHeartbeats sends an answer in each period. It ends a link on which nothing has
// arrived for so long that the other side must have made a new link.
func (p *Peers) sendHeartbeats(stream linkStream, s *served, heard *atomic.Pointer[arrivedHeartbeat], stop chan struct{}) {
	ticker := time.NewTicker(p.opts.HeartbeatPeriod)
	defer ticker.Stop()
	var received uint64
	progress := p.now()
	for {
		if now := s.body.bytes.Load(); now != received {
			received, progress = now, p.now()
		} else if time.Duration(p.now()-progress) > 3*p.opts.StuckAfter {
			s.abort()
			return
		}
		last := heard.Load()
		e := echo{heartbeat: last.heartbeat, received: received, turns: p.opts.Raft.Turns()}
		if e.heartbeat != 0 {
			e.clock, e.held = p.opts.Wall().UnixNano(), uint64(time.Duration(p.now()-last.at).Microseconds())
		}
		if err := stream.Send(&e); err != nil {
			s.abort()
			return
		}
		select {
		case <-ticker.C:
		case <-stop:
			return
		}
	}
}

// errOldLink: there is already a newer link of the same incarnation of the
// node.
var errOldLink = fmt.Errorf("%w: a newer connection of the node exists", ErrUnavailable)

const (
	// linksAtOnce is the number of links that an incarnation of a node may
	// begin at once, in addition to one per millisecond of its clock.
	linksAtOnce = 1 << 16
	// lateLinks is how long after the end of a link a lower number counts as an
	// old link that arrives late. It is limited, because otherwise a forged
	// high number would lock out the node's own links until it restarts.
	lateLinks = 10 * time.Second
)

// mostLinks returns an upper bound for the number of a link. A node begins
// less than one link per millisecond after its process has started, and its
// incarnation is the time at which its process started.
func mostLinks(incarnation uint64, now time.Time) uint64 {
	ms := uint64(max(0, now.UnixMilli()))
	return linksAtOnce + ms - min(ms, incarnation)
}

// replace makes s the current link from the node, unless its number is lower
// than that of a newer link.
func (q *peer) replace(s *served, number uint64) error {
	q.mu.Lock()
	if q.incarnation.Load() != s.hello.Incarnation {
		q.mu.Unlock()
		return ErrOldIncarnation
	}
	late := q.inbound != nil || time.Duration(q.owner.now()-q.linkEnded) < lateLinks
	if q.linkOf == s.hello.Incarnation && number <= q.linkNumber && late {
		q.mu.Unlock()
		return errOldLink
	}
	q.linkOf, q.linkNumber = s.hello.Incarnation, number
	old := q.inbound
	q.inbound = s
	q.mu.Unlock()
	if old != nil {
		old.abort()
	}
	return nil
}

// endLink clears the link from the node unless it was replaced.
func (q *peer) endLink(s *served) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inbound == s {
		q.inbound, q.linkEnded = nil, q.owner.now()
		q.consider()
	}
}
