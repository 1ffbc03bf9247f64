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
	// maxMessageBytes and maxEchoBytes bound a message of a link and its answer.
	maxMessageBytes = MaxFrameBytes + 64
	maxEchoBytes    = 1 << 10
	// minPause and maxPause bound the back-off between attempts to make a link.
	// maxPause is shorter than the suspicion timeout, so that a node whose link
	// breaks often is not suspected.
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

// isPutDown reports whether an operator put down the latest incarnation that
// was heard from. A later incarnation becomes known when it calls.
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
	cancel context.CancelCauseFunc
	stuck  *time.Timer
	sent   departures
	// answered means that the node, and not only its kernel, has sent
	// something.
	answered atomic.Bool
	received uint64 // bytes, by the peer's last answer; used by the reader

	mu     sync.Mutex
	failed bool
	conn   net.Conn
}

// link makes a link and returns why it ended. It tries HTTP/1.1 first. If
// the node does not accept links over HTTP/1.1, it uses HTTP/2, whose errors
// also say why a node refuses a link.
func (q *peer) link(parent context.Context, address string) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	l := &outbound{peer: q, cancel: cancel}
	l.stuck = time.AfterFunc(q.owner.opts.StuckAfter, func() { l.fail(errStuck) })
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
	if !l.overHTTP1(ctx, address) && ctx.Err() == nil {
		l.overHTTP2(ctx, address)
	}
	l.fail(errEnded)
	return q.owner.noteReplaced(decodeError(q.id, context.Cause(ctx)))
}

// transport returns the HTTP client of the link, whose connection is for the
// link alone.
func (l *outbound) transport(http1 bool) (*http.Transport, *caller) {
	opts := &l.peer.owner.opts
	t := network.NewHTTPTransport(endings{opts.Network, l}, network.HTTPOptions{HTTP1: http1, DialTimeout: opts.StuckAfter, ContinueTimeout: 2 * opts.StuckAfter, Dialed: l.setConn})
	return t, &caller{base: t, peers: l.peer.owner, to: l.peer}
}

// number returns the value of headerLink for one more attempt.
func (l *outbound) number() string { return strconv.FormatUint(l.peer.made.Add(1), 10) }

// overHTTP2 runs the link as a bidirectional stream of Connect until it ends.
func (l *outbound) overHTTP2(ctx context.Context, address string) {
	transport, base := l.transport(false)
	defer transport.CloseIdleConnections()
	client := connect.NewClient[batch, echo](
		&http.Client{Transport: base}, "http://"+address+peerv1connect.PeerServiceLinkProcedure,
		connect.WithCodec(linkCodec{}), connect.WithReadMaxBytes(maxEchoBytes), noCompression,
	)
	stream := client.CallBidiStream(ctx)
	stream.RequestHeader().Set(headerLink, l.number())
	var reader sync.WaitGroup
	reader.Go(func() {
		conn, err := stream.Conn()
		for err == nil {
			var e echo
			if err = conn.Receive(&e); err == nil {
				l.receive(e)
			}
		}
		l.failReading(err)
	})
	messages := l.newOutgoing(ctx)
	for {
		m, err := messages.next()
		if err != nil || stream.Send(m) != nil {
			break
		}
	}
	messages.close()
	if ctx.Err() == nil {
		reader.Wait() // the reader knows why the link ended
	}
	l.fail(errEnded)
	stream.CloseRequest()
	stream.CloseResponse()
	reader.Wait()
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

// receive handles an answer of the peer. The link is stuck if the peer has
// received nothing new for StuckAfter.
func (l *outbound) receive(e echo) {
	if !l.answered.Swap(true) {
		l.peer.answers()
	}
	l.peer.noteTurns(e.turns)
	l.measure(e)
	if e.received > l.received {
		l.received = e.received
		l.stuck.Reset(l.peer.owner.opts.StuckAfter)
	}
}

// failReading ends the link because no further answer can be read.
func (l *outbound) failReading(err error) {
	if errors.Is(err, io.EOF) {
		err = errEnded
	}
	l.fail(err)
}

// outgoing makes the messages of a link: the queued frames in as few messages as
// the bounds allow, and one heartbeat per period. It is not safe for concurrent
// use.
type outgoing struct {
	ctx    context.Context
	link   *outbound
	ticker *time.Ticker
	out    batch
	beat   uint64   // number of the last heartbeat
	taken  [][]byte // frames taken from the queue
	rest   [][]byte // frames of taken that were not sent yet
	// frames and bytes count the frames of the message that next returned last,
	// until they are released.
	frames, bytes int
}

func (l *outbound) newOutgoing(ctx context.Context) *outgoing {
	return &outgoing{ctx: ctx, link: l, ticker: time.NewTicker(l.peer.owner.opts.HeartbeatPeriod)}
}

// next returns the next message, which is valid until the next call, and waits
// for it if necessary. The first message has a heartbeat. The call confirms
// that the previous message was sent. It returns an error when the link's
// context ends.
func (o *outgoing) next() (*batch, error) {
	q := o.link.peer
	q.sent.add(o.frames, o.bytes)
	o.release()
	o.out = batch{}
	for len(o.rest) == 0 && o.out.heartbeat == 0 {
		due := o.beat == 0
		if !due {
			select {
			case <-q.queue.wake:
			case <-o.ticker.C:
				due = true
			case <-o.ctx.Done():
				return nil, o.ctx.Err()
			}
		}
		if due {
			o.beat++
			o.out.heartbeat, o.out.turns = o.beat, q.owner.opts.Raft.Turns()
			o.link.sent.note(o.beat, q.owner.now())
		}
		runtime.Gosched() // yield to goroutines that are about to queue frames, because a message costs more than a frame
		o.taken = q.queue.take(o.taken)
		o.rest = o.taken
	}
	size := 0
	for _, f := range o.rest {
		if o.frames > 0 && size+frameSize(f) > batchBytes {
			break
		}
		size += frameSize(f)
		o.bytes += len(f)
		o.frames++
	}
	o.out.frames = o.rest[:o.frames]
	return &o.out, nil
}

// release forgets the message that next returned last and frees its room in the
// queue.
func (o *outgoing) release() {
	o.link.peer.queue.release(o.frames, o.bytes)
	o.rest = o.rest[o.frames:]
	o.frames, o.bytes = 0, 0
}

// close drops the frames that were taken and not sent.
func (o *outgoing) close() {
	o.ticker.Stop()
	o.release()
	for _, f := range o.rest {
		o.link.peer.queue.release(1, len(f))
	}
	o.rest = nil
}
