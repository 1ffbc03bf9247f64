package peer

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/host/network"
)

// Bounds of the link to a peer.
const (
	// batchBytes bounds a message with several frames; a larger frame is a
	// message of its own. It is also how much memory one small frame can retain
	// at the receiver, because the frames of a message share its memory.
	batchBytes = 64 << 10
	// maxMessageBytes bounds a message of a link.
	maxMessageBytes = MaxFrameBytes + 64
	// minPause and maxPause bound the back-off between two attempts to make a
	// link. maxPause is shorter than the suspicion timeout, so that a node
	// whose link breaks often is not suspected.
	minPause = 25 * time.Millisecond
	maxPause = 400 * time.Millisecond
	// lostPause is the pause after the loss of a link that had lasted. It is
	// short, to find out quickly whether the process still exists.
	lostPause = 2 * time.Millisecond
)

var (
	errMoved   = errors.New("the node has a new address or a new start")
	errSevered = errors.New("the node was declared down or is no longer a member")
	errStuck   = errors.New("the connection makes no progress")
	errEnded   = errors.New("the node closed the connection")
)

// run keeps the link until ctx ends.
func (q *peer) run(ctx context.Context) {
	pause := minPause
	for ctx.Err() == nil {
		q.mu.Lock()
		address := q.address
		q.mu.Unlock()
		began := q.owner.now()
		if address != "" && q.owner.Cluster() != "" && !q.isPutDown() {
			err := q.link(ctx, address)
			q.owner.opts.Logger.Debug("connection to a node ended", "node_id", q.id, "address", address, "error", err)
		}
		q.queue.discard()
		if time.Duration(q.owner.now()-began) > q.owner.opts.StuckAfter {
			pause = lostPause
		}
		if q.rest(ctx, address, pause/2+rand.N(pause/2)) {
			pause = minPause
		} else {
			pause = min(2*pause, maxPause)
		}
	}
}

// isPutDown reports whether an operator put down the newest start that was
// heard from. A later start becomes known when it calls.
func (q *peer) isPutDown() bool {
	start := q.incarnation.Load()
	return start != 0 && q.owner.mayStart(Hello{Node: q.id, Incarnation: start}) != nil
}

// rest waits for d and returns false, or returns true if there is a reason to
// try earlier. If address is empty, only such a reason ends the wait.
func (q *peer) rest(ctx context.Context, address string, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	elapsed := timer.C
	if address == "" {
		elapsed = nil
	}
	select {
	case <-elapsed:
		return false
	case <-q.kick:
		return true
	case <-ctx.Done():
		return false
	}
}

// outbound is one link to a peer: a stream on its own connection.
type outbound struct {
	peer   *peer
	stream *connect.BidiStreamForClient[batch, echo]
	cancel context.CancelCauseFunc
	stuck  *time.Timer
	sent   departures
	// answered means that the node, and not only its kernel, has sent
	// something.
	answered atomic.Bool

	mu     sync.Mutex
	failed bool
	conn   net.Conn
}

// link makes a link and returns why it ended.
func (q *peer) link(parent context.Context, address string) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	opts := &q.owner.opts
	l := &outbound{peer: q, cancel: cancel}
	transport := network.NewHTTPTransport(endings{opts.Network, l}, network.HTTPOptions{DialTimeout: opts.StuckAfter, Dialed: l.setConn})
	defer transport.CloseIdleConnections()
	client := connect.NewClient[batch, echo](
		&http.Client{Transport: &caller{base: transport, peers: q.owner, to: q}},
		"http://"+address+peerv1connect.PeerServiceLinkProcedure,
		connect.WithCodec(linkCodec{}), connect.WithReadMaxBytes(1<<10), noCompression,
	)
	l.stuck = time.AfterFunc(opts.StuckAfter, func() { l.fail(errStuck) })
	defer l.stuck.Stop()
	q.mu.Lock()
	q.cut = l.fail
	moved := q.address != address
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		q.cut = nil
		q.mu.Unlock()
	}()
	if moved {
		return errMoved
	}
	l.stream = client.CallBidiStream(ctx)
	l.stream.RequestHeader().Set(headerLink, strconv.FormatUint(q.made.Add(1), 10))
	var reader sync.WaitGroup
	reader.Go(l.read)
	l.write(ctx)
	if ctx.Err() == nil {
		reader.Wait() // the reader knows why the link ended
	}
	l.fail(errEnded)
	l.stream.CloseRequest()
	l.stream.CloseResponse()
	reader.Wait()
	return q.owner.noteReplaced(decodeError(q.id, context.Cause(ctx)))
}

// setConn records the connection, so that fail can close it whatever the HTTP
// layers are waiting for.
func (l *outbound) setConn(conn net.Conn) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed {
		conn.Close()
	}
	l.conn = conn
	return conn
}

// fail ends the link. The first reason is kept.
func (l *outbound) fail(err error) {
	l.cancel(err)
	l.mu.Lock()
	conn := l.conn
	l.failed = true
	l.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

// read receives the peer's answers until the stream ends. The link is stuck if
// the peer has received nothing new for StuckAfter.
func (l *outbound) read() {
	var received uint64
	var e echo
	conn, err := l.stream.Conn()
	for {
		if err == nil {
			err = conn.Receive(&e)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errEnded
			}
			l.fail(err)
			return
		}
		if !l.answered.Swap(true) {
			l.peer.answers()
		}
		l.peer.noteTurns(e.turns)
		l.measure(e)
		if e.received > received {
			received = e.received
			l.stuck.Reset(l.peer.owner.opts.StuckAfter)
		}
	}
}

// write sends the queued frames and one heartbeat per period, until the stream
// ends.
func (l *outbound) write(ctx context.Context) {
	q := l.peer
	ticker := time.NewTicker(q.owner.opts.HeartbeatPeriod)
	defer ticker.Stop()
	out := &batch{heartbeat: 1, turns: q.owner.opts.Raft.Turns()}
	var taken [][]byte
	for beat := uint64(1); ; {
		runtime.Gosched() // yield to goroutines that are about to queue frames, because a message costs more than a frame
		if taken = q.queue.take(taken); !l.send(out, taken) {
			return
		}
		select {
		case <-q.queue.wake:
		case <-ticker.C:
			beat++
			out.heartbeat, out.turns = beat, q.owner.opts.Raft.Turns()
		case <-ctx.Done():
			return
		}
	}
}

// send sends out's heartbeat, if there is one, and the frames in as few
// messages as the bounds allow. It reports whether everything was sent.
func (l *outbound) send(out *batch, frames [][]byte) bool {
	for sent := 0; sent < len(frames) || out.heartbeat != 0; {
		count, bytes := 0, 0
		for _, f := range frames[sent:] {
			if count > 0 && bytes+frameSize(f) > batchBytes {
				break
			}
			bytes += frameSize(f)
			count++
		}
		out.frames = frames[sent : sent+count]
		if out.heartbeat != 0 {
			l.sent.note(out.heartbeat, l.peer.owner.now())
		}
		err := l.stream.Send(out)
		for _, f := range out.frames {
			bytes -= frameSize(f) - len(f)
		}
		l.peer.sent.add(count, bytes)
		l.peer.queue.release(count, bytes)
		out.frames, out.heartbeat, out.turns = nil, 0, 0
		sent += count
		if err != nil {
			for _, f := range frames[sent:] {
				l.peer.queue.release(1, len(f))
			}
			return false
		}
	}
	return true
}
