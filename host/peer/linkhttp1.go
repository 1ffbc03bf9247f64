package peer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/host/network"
)

// A link over HTTP/1.1 is a POST whose body and answer are sent concurrently, as
// long as the link exists. They consist of the same messages, in the same
// envelopes, as those of Connect over HTTP/2.
//
// Almost all traffic between nodes is on links, and its latency is part of each
// command. With HTTP/2, a message passes from the link's writer to the
// connection's writer, and at the other node from the connection's reader to
// the server's loop and then to the link's reader, so that most messages wake
// three goroutines that do nothing else. With HTTP/1.1 the goroutine that takes
// frames from the queue writes to the connection, and the one that reads from
// the connection passes them to the raft loop.

const (
	linkContentType = "application/connect+proto"
	envelopeBytes   = 5 // flags and the length of the message
)

// overHTTP1 runs the link over HTTP/1.1 until it ends. It returns false without
// having taken any frame if the other node does not accept links over
// HTTP/1.1. The client sends the body only after the node has answered 100
// Continue, because a server that does not accept the link would otherwise
// wait for the end of the body before it answers.
func (l *outbound) overHTTP1(ctx context.Context, address string) (accepted bool) {
	transport, base := l.transport(true)
	defer transport.CloseIdleConnections()
	body := newLinkBody(ctx, l)
	defer body.end()
	var continued atomic.Bool // the node has accepted the link
	traced := httptrace.WithClientTrace(body.ctx, &httptrace.ClientTrace{Got100Continue: func() { continued.Store(true) }})
	r, err := http.NewRequestWithContext(traced, http.MethodPost, "http://"+address+peerv1connect.PeerServiceLinkProcedure, body)
	if err != nil {
		l.fail(err)
		return true
	}
	r.Header.Set("Content-Type", linkContentType)
	r.Header.Set("Expect", "100-continue")
	r.Header.Set(headerLink, l.number())
	answer, err := base.RoundTrip(r)
	if err != nil {
		if errors.Is(err, network.ErrNotConnected) || continued.Load() {
			l.fail(err)
			return true
		}
		return false
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || !continued.Load() {
		return false
	}
	in := bufio.NewReader(answer.Body)
	for {
		var e echo
		message, err := readEnvelope(in, maxEchoBytes)
		if err == nil {
			err = e.parse(message)
		}
		if err != nil {
			l.failReading(err)
			return true
		}
		l.receive(e)
	}
}

// linkBody is the body of a link's request. The goroutine of the HTTP client
// that reads it is the link's writer.
type linkBody struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex // held by Read, also while it waits
	messages *outgoing
	buffer   []byte
	rest     []byte // the part of buffer that was not read yet
}

func newLinkBody(ctx context.Context, l *outbound) *linkBody {
	b := &linkBody{}
	b.ctx, b.cancel = context.WithCancel(ctx)
	b.messages = l.newOutgoing(b.ctx)
	return b
}

// Read implements io.Reader. It waits for the next message.
func (b *linkBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if len(b.rest) == 0 {
		message, err := b.messages.next()
		if err != nil {
			return 0, err
		}
		if cap(b.buffer) > 4*batchBytes {
			b.buffer = nil
		}
		b.buffer = appendEnvelope(b.buffer[:0], message)
		b.rest = b.buffer
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close implements io.Closer. It ends a Read that waits.
func (b *linkBody) Close() error {
	b.cancel()
	return nil
}

// end drops the frames that were not sent. No frame is taken afterwards.
func (b *linkBody) end() {
	b.cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages.close()
}

// linkOverHTTP1 serves a link over HTTP/1.1.
func (p *Peers) linkOverHTTP1(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != linkContentType {
		http.Error(w, "a link is a POST of "+linkContentType, http.StatusUnsupportedMediaType)
		return
	}
	s := servedOf(r.Context())
	end, err := p.beginLink(s, r.Header)
	if err != nil {
		connect.NewErrorWriter().Write(w, r, p.encodeError(err))
		return
	}
	defer end()
	out := http.NewResponseController(w)
	if err := out.EnableFullDuplex(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusContinue) // before the answer, after which the client would not send the body
	w.Header().Set("Content-Type", linkContentType)
	p.serveLink(s, &http1Stream{in: bufio.NewReaderSize(r.Body, batchBytes/4), out: w, control: out})
}

// http1Stream is the serving side of a link over HTTP/1.1.
type http1Stream struct {
	in      *bufio.Reader
	out     http.ResponseWriter
	control *http.ResponseController
}

// Receive implements linkStream.
func (s *http1Stream) Receive(message any) error {
	data, err := readEnvelope(s.in, maxMessageBytes)
	if err != nil {
		return err
	}
	return message.(*batch).parse(data)
}

// Send implements linkStream.
func (s *http1Stream) Send(message any) error {
	if _, err := s.out.Write(appendEnvelope(nil, message)); err != nil {
		return err
	}
	return s.control.Flush()
}

// appendEnvelope appends a message in its envelope.
func appendEnvelope(dst []byte, message any) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0)
	dst, _ = linkCodec{}.MarshalAppend(dst, message) // fails for other types only
	binary.BigEndian.PutUint32(dst[start+1:], uint32(len(dst)-start-envelopeBytes))
	return dst
}

// readEnvelope reads a message of at most limit bytes into memory of its own.
func readEnvelope(in *bufio.Reader, limit int) ([]byte, error) {
	head, err := in.Peek(envelopeBytes)
	if err != nil {
		return nil, err
	}
	flags, size := head[0], int(binary.BigEndian.Uint32(head[1:]))
	switch {
	case flags != 0:
		return nil, fmt.Errorf("%w: envelope has flags %#x", errMalformed, flags)
	case size > limit:
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", errMalformed, size, limit)
	}
	in.Discard(envelopeBytes)
	// The memory for a large message grows with the bytes that arrive.
	data := make([]byte, 0, min(size, batchBytes))
	for len(data) < size && err == nil {
		if len(data) == cap(data) {
			data = slices.Grow(data, min(size-len(data), len(data)))
		}
		var n int
		n, err = io.ReadFull(in, data[len(data):min(cap(data), size)])
		data = data[:len(data)+n]
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return data, err
}
