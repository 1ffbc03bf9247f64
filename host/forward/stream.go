package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/request"
)

// headerLink names a stream among the streams of its client's node.
const headerLink = "Hostd-Link"

// maxStreamBytes bounds a message in either direction.
const maxStreamBytes = 4 << 20

// errSuspected: the node is suspected.
var errSuspected = errors.New("no heartbeats from the node")

type bidi = connect.BidiStreamForClient[wire.Message, wire.Message]

// run keeps a stream while there is something to send, until ctx ends.
func (l *link) run(ctx context.Context) {
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			l.broke(ctx.Err(), true)
			return
		}
		l.mu.Lock()
		idle := len(l.queue) == 0
		l.mu.Unlock()
		if idle {
			continue
		}
		err := l.carry(ctx)
		l.broke(err, ctx.Err() != nil)
		if ctx.Err() != nil {
			return
		}
		l.client.opts.Logger.Debug("a forwarding stream ended", "node_id", l.to, "error", err)
	}
}

// carry opens a stream and sends over it until it breaks.
func (l *link) carry(ctx context.Context) error {
	client, base, err := l.client.opts.Peers.Client(l.to)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.mu.Lock()
	l.breakStream = cancel
	silent := l.suspected
	l.mu.Unlock()
	if silent {
		return errSuspected
	}
	c := connect.NewClient[wire.Message, wire.Message](envelopes{client}, base+peerv1connect.ForwardServiceForwardProcedure,
		connect.WithCodec(wire.Codec{}), connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxStreamBytes))
	conn := c.CallBidiStream(ctx)
	conn.RequestHeader().Set(headerLink, l.name)
	if err := l.open(conn, cancel); err != nil {
		conn.CloseRequest()
		conn.CloseResponse()
		return err
	}
	received := make(chan error, 1)
	go func() { received <- l.receive(conn) }()
	ended, err := l.transmit(ctx, conn, received)
	cancel()
	conn.CloseRequest() // the transport notices the end of ctx only if it need not wait for more to send
	if !ended {
		err = errors.Join(err, <-received)
	}
	conn.CloseResponse()
	return err
}

// endedThere reports whether the other side ended the stream. If so, the
// other side will never run requests that it had not taken by then.
func endedThere(err error) bool {
	for _, end := range [...]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	var said *connect.Error
	return errors.As(err, &said) && connect.IsWireError(said)
}

// open waits for the node's greeting. Nothing is sent before the greeting,
// so a failure before the greeting means that no request ran.
func (l *link) open(conn *bidi, cancel context.CancelFunc) error {
	late := time.AfterFunc(l.client.opts.OpenTimeout, cancel)
	defer late.Stop()
	if err := conn.Send(nil); err != nil {
		_, err = conn.Receive()
		return fmt.Errorf("open a stream to node %s: %w", l.to, err)
	}
	if _, err := conn.Receive(); err != nil {
		return fmt.Errorf("open a stream to node %s: %w", l.to, err)
	}
	return nil
}

// transmit sends the queued requests whenever the stream has room.
func (l *link) transmit(ctx context.Context, conn *bidi, received <-chan error) (ended bool, err error) {
	var out wire.Message
	signal(l.wake) // for requests that were queued before
	for {
		select {
		case <-l.wake:
		case err := <-received:
			return true, err
		case <-ctx.Done():
			return false, ctx.Err()
		}
		for {
			var late []*request.Request
			out.Bytes, late = l.take(out.Bytes[:0])
			complete(late, request.ErrDeadline)
			if len(out.Bytes) == 0 {
				break
			}
			if err := conn.Send(&out); err != nil {
				return false, err
			}
		}
		if cap(out.Bytes) > 2*maxMessageBytes {
			out.Bytes = nil
		}
	}
}

// receive completes requests until the stream ends.
func (l *link) receive(conn *bidi) error {
	in, err := conn.Conn()
	if err != nil {
		return err
	}
	var done []*request.Request
	for {
		var m wire.Message // results alias it
		if err := in.Receive(&m); err != nil {
			return err
		}
		if done, err = l.completeAnswered(m.Bytes, done); err != nil {
			return err
		}
	}
}

// envelopes writes each message in one piece. Otherwise the prefix and the
// bytes would be sent in separate frames.
type envelopes struct{ http *http.Client }

// Do implements connect.HTTPClient.
func (d envelopes) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+") {
		r.Body = &wire.Envelopes{Body: r.Body}
	}
	return d.http.Do(r)
}
