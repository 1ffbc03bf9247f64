package admission

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/procedure"
	"github.com/hostd/hostd/host/status"
)

// unlisted describes requests that are no calls of a procedure.
var unlisted procedure.Procedure

// BodyOptions set the limits of request bodies. All fields are required unless
// marked otherwise.
type BodyOptions struct {
	MessageBytes, UploadBytes int
	Waiting                   *Waiting
	Decodes                   *Decodes
	Uploads                   *Uploads
	// MayUpload returns an error to reject an upload before it waits for its
	// turn; nil rejects none.
	MayUpload func(context.Context) error
	// Services have the messages whose decoded size is computed before they are
	// decoded. Other messages are charged by a fixed factor.
	Services []protoreflect.ServiceDescriptor
	// Log receives messages for operators.
	Log *slog.Logger
}

// Bodies limits the size of request bodies, charges their memory to the budget
// of waiting bytes, and lifts the server's timeouts for streams.
//
// A message is read completely before its decoder sees any of it, and is charged
// as it arrives, so that a decoder never works on unbounded input. Then the
// memory that the message will need after decoding is computed from its bytes
// and charged too, and a large message waits for one of the decoding turns. The
// charge ends when the call has converted its request to a form that is charged
// separately (Charge.Settle), when the next message of a stream is read, or when
// the call ends. After decoding, it is reduced to the memory of the decoded
// message (Decoding), because the call may last long. A module is not charged:
// its upload waits for an upload turn before the first byte is read.
func Bodies(next http.Handler, o BodyOptions) http.Handler {
	b := &bodies{BodyOptions: o, message: tooLarge(o.MessageBytes), upload: tooLarge(o.UploadBytes), inputs: map[string]*shape{}}
	var all shapes
	for _, s := range o.Services {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			b.inputs["/"+string(s.FullName())+"/"+string(m.Name())] = all.of(m.Input())
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.serve(w, r, next) })
}

type bodies struct {
	BodyOptions
	message, upload error
	inputs          map[string]*shape // by procedure
}

func (b *bodies) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	p := procedure.At(r.URL.Path)
	if p == nil {
		p = &unlisted
	}
	ctx := r.Context()
	if p.LongLived {
		conn := http.NewResponseController(w)
		conn.SetWriteDeadline(time.Time{})
		if p.Input {
			conn.SetReadDeadline(time.Time{})
		}
		ctx = context.WithValue(ctx, connKey{}, conn)
	}
	bodied, asks := r.Body != nil && r.Body != http.NoBody, r.Method == http.MethodGet && r.URL.RawQuery != ""
	if !bodied && !asks || ctx.Value(emptiedKey{}) != nil {
		if p.LongLived {
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
		return
	}
	c := &call{charge: Charge{bodies: b, share: b.Waiting.Of(ctx), shape: b.inputs[r.URL.Path]}, ctx: charged{Context: ctx}}
	charge := &c.charge
	c.ctx.charge = charge
	defer charge.Settle()
	// http.Server checks the type of its own request's body to decide whether it
	// can discard the unread rest. If the body had a different type, the server
	// would, after a body that was closed early, parse the rest of it as the
	// next request of the connection. So only a copy of the request gets the new
	// body.
	r = r.WithContext(&c.ctx)
	m := message{charge: charge, shape: charge.shape, limit: b.MessageBytes, over: b.message, ctx: ctx, input: p.Input, stream: p.OwnCodec,
		many: p.Input || p.Pieces || p == &unlisted, json: isJSON(r.Header.Get("Content-Type"))}
	switch {
	case !bodied:
		if err := b.chargeURL(&m, r.URL); err != nil {
			connect.NewErrorWriter().Write(w, r, status.Public(b.Log, err))
			return
		}
	case p.Pieces:
		whole := &limitedBody{body: r.Body, left: b.UploadBytes, over: b.upload}
		r.Body = &envelopes{message: m, body: whole}
	case isEnveloped(r) && p.Upload:
		r.Body = &uploadBody{ctx: ctx, uploads: b.Uploads, may: b.MayUpload, charge: charge, log: b.Log,
			ReadCloser: &wire.Envelopes{Body: r.Body, Limit: b.UploadBytes, OverLimit: b.upload}}
	case isEnveloped(r):
		r.Body = &envelopes{message: m, body: r.Body}
	case p.Upload:
		r.Body = &uploadBody{ctx: ctx, uploads: b.Uploads, may: b.MayUpload, charge: charge, log: b.Log,
			ReadCloser: &limitedBody{body: r.Body, left: b.UploadBytes, over: b.upload}}
	default:
		c.single = single{message: m, body: limitedBody{body: r.Body, left: b.MessageBytes, over: b.message}}
		r.Body = &c.single
	}
	next.ServeHTTP(w, r)
}

// emptiedKey is the context key for calls whose body was replaced.
type emptiedKey struct{}

// WithEmptyMessage marks a call that is charged nothing, because its message was replaced
// by an empty one.
func WithEmptyMessage(ctx context.Context) context.Context {
	return context.WithValue(ctx, emptiedKey{}, true)
}

// chargeURL charges the message of a GET request, which is a URL parameter.
func (b *bodies) chargeURL(m *message, u *url.URL) error {
	if m.shape == nil {
		return nil
	}
	given, err := url.ParseQuery(u.RawQuery)
	if err != nil || !given.Has("message") {
		return nil
	}
	data := []byte(given.Get("message"))
	if given.Get("base64") == "1" {
		if data, err = base64.RawURLEncoding.DecodeString(strings.TrimRight(string(data), "=")); err != nil {
			return nil
		}
	}
	m.json = isJSON(given.Get("encoding"))
	return m.chargeDecoded(data)
}

// isEnveloped reports whether the messages have a length prefix, as they do in
// every protocol except unary Connect.
func isEnveloped(r *http.Request) bool {
	kind := r.Header.Get("Content-Type")
	return strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect+")
}

// tooLarge makes the error for a message over a limit. It is invalid_argument,
// because a retry cannot succeed.
func tooLarge(limit int) *connect.Error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("the message is longer than %d bytes", limit))
}

// Decodes limits how many large messages are decoded concurrently, because
// decoding uses temporary memory and produces garbage that the charge only
// estimates.
type Decodes struct{ turns chan struct{} }

// NewDecodes allows most concurrent decodes.
func NewDecodes(most int) *Decodes { return &Decodes{make(chan struct{}, most)} }

// smallMessage is the size in bytes up to which a message needs no decoding
// turn.
const smallMessage = 4 << 10

// decodedError rejects a message that would need more memory after decoding than
// its sender may ever use of the budget of waiting bytes, so that it could never be
// admitted.
type decodedError struct{ Bytes, Limit int64 }

// Code implements status.Coded.
func (e *decodedError) Code() connect.Code { return connect.CodeInvalidArgument }

func (e *decodedError) Error() string {
	return fmt.Sprintf("the decoded message may need %d bytes of memory, more than a caller may use of max-waiting-bytes, which is %d: split it, or send it as data", e.Bytes, e.Limit)
}

// Charge is what one request holds of the budget of waiting bytes, and of the
// decoding turns. Only the goroutine of the request may use it. A nil Charge
// holds nothing.
type Charge struct {
	bodies  *bodies
	share   Share
	shape   *shape // of the message; nil if it is not known
	read    int64  // bytes charged for the buffer of the encoded message
	decoded int64
	turn    bool
	leave   func() // ends an upload's turn
}

type chargeKey struct{}

// call combines the allocations of a request into one.
type call struct {
	charge Charge
	ctx    charged
	single single // the body, if it is a single message
}

// charged is the context of a request that has a charge.
type charged struct {
	context.Context
	charge *Charge
}

// Value implements context.Context.
func (c *charged) Value(key any) any {
	if key == (chargeKey{}) {
		return c.charge
	}
	return c.Context.Value(key)
}

// ChargeOf returns the charge of a request's context, nil if the request has no
// message.
func ChargeOf(ctx context.Context) *Charge {
	c, _ := ctx.Value(chargeKey{}).(*Charge)
	return c
}

// streamAllowance is how many bytes a message of SendCommandStream may be charged even
// if the budget is exhausted. The server needs the message to reject its
// commands one by one. The limit on streams bounds the total.
const streamAllowance = 64 << 10

// take charges n bytes to the budget and adds them to *to.
func (m *message) take(n int64, to *int64) error {
	c := m.charge
	if m.stream && c.read+c.decoded+n <= streamAllowance {
		c.share.count(n)
	} else if err := c.share.Take(n); err != nil {
		return err
	}
	*to += n
	return nil
}

// shrink ends the charge for the read buffer, which is free again.
func (c *Charge) shrink() {
	c.share.Give(c.read)
	c.read = 0
}

// EndDecoding ends the turn of a message that was decoded.
func (c *Charge) EndDecoding() {
	if c != nil && c.turn {
		c.turn = false
		<-c.bodies.Decodes.turns
	}
}

// retain reduces the charge of a message to what m, the decoded message, needs.
// The bytes on the wire may have set the same field again and again, and only
// the last value is left: without the reduction, a few calls that last long would
// occupy the whole budget with messages that no longer need the memory. The new
// charge is the bound for the shortest encoding of m, computed like the bound for
// the bytes on the wire. retain fails if a list has become too long because the
// message contains it in several parts.
func (c *Charge) retain(m proto.Message) error {
	if c == nil || c.decoded == 0 {
		return nil
	}
	dropUnknown(m.ProtoReflect())
	if c.decoded <= smallMessage {
		return nil
	}
	data, err := proto.MarshalOptions{AllowPartial: true}.Marshal(m)
	if err != nil {
		return nil // the charge stays as it is
	}
	n := int64(unknownFactor * len(data))
	if c.shape != nil {
		if n, err = c.shape.binary(data); err != nil {
			return status.Public(c.bodies.Log, err)
		}
	}
	if n < c.decoded {
		c.share.Give(c.decoded - n)
		c.decoded = n
	}
	return nil
}

// Settle ends the charge of the message, because its call no longer holds the
// message or has charged the parts that it holds separately.
func (c *Charge) Settle() {
	if c == nil {
		return
	}
	c.EndDecoding()
	if n := c.read + c.decoded; n != 0 {
		c.share.Give(n)
		c.read, c.decoded = 0, 0
	}
	if c.leave != nil {
		c.leave()
		c.leave = nil
	}
}

// message is a message that is read and charged.
type message struct {
	ctx    context.Context
	charge *Charge
	shape  *shape // nil if it is not known
	json   bool
	limit  int
	over   error
	many   bool // more messages follow; each is read when the previous one is done
	input  bool // read deadlines are set elsewhere
	stream bool // the procedure is SendCommandStream

	buf    []byte  // bytes read so far
	pooled *[]byte // the buffer of buf; nil if there is none
	served int     // how much of buf the decoder has
	failed error
}

// unknownFactor is the charge per byte of a message whose shape is not known.
const unknownFactor = 64

// chargeDecoded charges the memory that a message needs after decoding, and waits for
// a decoding turn.
func (m *message) chargeDecoded(data []byte) (err error) {
	c := m.charge
	n := int64(unknownFactor * len(data))
	switch {
	case m.shape == nil:
	case m.json:
		n = m.shape.text(data)
	default:
		if n, err = m.shape.binary(data); err != nil {
			return err
		}
	}
	n += 2 * int64(len(data)) // the decoder's copy, whose buffer grows by doubling
	if n > c.share.limit() {
		return &decodedError{Bytes: n, Limit: c.share.limit()}
	}
	if err := m.take(n, &c.decoded); err != nil {
		return err
	}
	if len(data) <= smallMessage || c.turn {
		return nil
	}
	select {
	case c.bodies.Decodes.turns <- struct{}{}:
		c.turn = true
		return nil
	case <-m.ctx.Done():
		return m.ctx.Err()
	}
}

// Buffers of up to largeBuffer bytes are pooled. Most messages fit the first
// buffer; batches of a stream need the large one repeatedly.
const (
	firstBuffer = 1 << 10
	largeBuffer = 16 << 10
)

var (
	firstBuffers = sync.Pool{New: func() any { return newBuffer(firstBuffer) }}
	largeBuffers = sync.Pool{New: func() any { return newBuffer(largeBuffer) }}
)

func newBuffer(size int) *[]byte {
	b := make([]byte, 0, size)
	return &b
}

// room makes room in buf, which may hold at most most bytes.
func (m *message) room(most int) error {
	if len(m.buf) < cap(m.buf) {
		return nil
	}
	size := firstBuffer
	if m.buf != nil {
		size = min(2*cap(m.buf), max(most, cap(m.buf)+1))
		if size <= largeBuffer {
			size = largeBuffer
		}
	}
	if err := m.take(int64(size-cap(m.buf)), &m.charge.read); err != nil {
		return err
	}
	read, pooled := m.buf, m.pooled
	switch size {
	case firstBuffer:
		m.pooled = firstBuffers.Get().(*[]byte)
	case largeBuffer:
		m.pooled = largeBuffers.Get().(*[]byte)
	default:
		m.pooled = newBuffer(size)
	}
	m.buf = append((*m.pooled)[:0], read...)
	recycle(pooled)
	return nil
}

func (m *message) reuse() {
	recycle(m.pooled)
	m.buf, m.pooled = nil, nil
}

// recycle returns a buffer to the pool for its size, if there is one.
func recycle(b *[]byte) {
	switch {
	case b == nil:
	case cap(*b) == firstBuffer:
		firstBuffers.Put(b)
	case cap(*b) == largeBuffer:
		largeBuffers.Put(b)
	}
}

// serve copies bytes that were read to the decoder. After the last byte it
// recycles the buffer.
func (m *message) serve(p []byte) int {
	n := copy(p, m.buf[m.served:])
	if m.served += n; m.served == len(m.buf) {
		m.reuse()
		m.served = 0
		m.charge.shrink()
	}
	return n
}

// fail converts an error to a public one and stores it, so that every later read
// returns it.
func (m *message) fail(err error) error {
	var public *connect.Error
	var slow net.Error
	switch {
	case errors.As(err, &public) || err == io.EOF:
	case errors.As(err, new(status.Coded)), errors.As(err, new(*WaitingBytesError)):
		err = status.Public(m.charge.bodies.Log, err)
	case m.input, m.ctx.Err() != nil:
	case errors.As(err, &slow) && slow.Timeout():
		err = connect.NewError(connect.CodeDeadlineExceeded, errors.New("the request did not arrive in time"))
	default: // errors of net/http about a malformed or truncated body
		err = connect.NewError(connect.CodeInvalidArgument, errors.New("the request's body is malformed or truncated"))
	}
	m.failed = err
	return err
}

// single is a body that is one message without a prefix.
type single struct {
	message
	body  limitedBody
	whole bool
}

// Read implements io.Reader.
func (s *single) Read(p []byte) (int, error) {
	if s.failed != nil {
		return 0, s.failed
	}
	if !s.whole {
		if err := s.load(); err != nil {
			return 0, s.fail(err)
		}
		s.whole = true
	}
	if len(s.buf) == 0 {
		return 0, io.EOF
	}
	return s.serve(p), nil
}

func (s *single) load() error {
	for {
		if err := s.room(s.limit + 1); err != nil {
			return err
		}
		n, err := s.body.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+n]
		if err == io.EOF {
			return s.chargeDecoded(s.buf)
		}
		if err != nil {
			return err
		}
	}
}

// Close implements io.Closer.
func (s *single) Close() error { return s.body.Close() }

// envelopes is a body of messages with prefixes.
type envelopes struct {
	message
	body io.ReadCloser
}

// Read implements io.Reader. It returns a prefix together with the message that
// follows it.
func (e *envelopes) Read(p []byte) (int, error) {
	if e.failed != nil {
		return 0, e.failed
	}
	if len(e.buf) == 0 {
		e.charge.EndDecoding() // the previous message, if there was one
		if e.many {
			e.charge.Settle()
		}
		if err := e.next(); err != nil {
			return 0, e.fail(err)
		}
	}
	return e.serve(p), nil
}

// next reads a message. If the body ends within the message, next returns the
// truncated message without an error, and the next call returns the error.
func (e *envelopes) next() error {
	var prefix [wire.PrefixBytes]byte
	n, err := io.ReadFull(e.body, prefix[:])
	if err != nil && err != io.ErrUnexpectedEOF {
		return err
	}
	if grown := e.room(e.limit); grown != nil {
		return grown
	}
	e.buf = append(e.buf, prefix[:n]...)
	if err != nil {
		return nil
	}
	size := binary.BigEndian.Uint32(prefix[1:])
	if uint64(size) > uint64(e.limit) {
		return e.over
	}
	whole := wire.PrefixBytes + int(size)
	for len(e.buf) < whole {
		if err := e.room(whole); err != nil {
			return err
		}
		n, err := e.body.Read(e.buf[len(e.buf):min(cap(e.buf), whole)])
		e.buf = e.buf[:len(e.buf)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	return e.chargeDecoded(e.buf[wire.PrefixBytes:])
}

// Close implements io.Closer.
func (e *envelopes) Close() error { return e.body.Close() }

// uploadBody waits for an upload turn before it reads the first byte. The turn
// ends with the call.
type uploadBody struct {
	io.ReadCloser
	ctx     context.Context
	uploads *Uploads
	may     func(context.Context) error
	charge  *Charge
	log     *slog.Logger
	failed  error
}

// Read implements io.Reader.
func (u *uploadBody) Read(p []byte) (int, error) {
	if u.charge.leave == nil && u.failed == nil {
		var leave func()
		var err error
		if u.may != nil {
			err = u.may(u.ctx)
		}
		if err == nil {
			leave, err = u.uploads.Enter(u.ctx)
		}
		if err != nil {
			u.failed = status.Public(u.log, err)
		} else {
			u.charge.leave = leave
		}
	}
	if u.failed != nil {
		return 0, u.failed
	}
	return u.ReadCloser.Read(p)
}

// limitedBody fails if a request body is longer than its limit.
type limitedBody struct {
	body io.ReadCloser
	left int // negative after the limit was exceeded
	over error
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.over
	}
	if len(p) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.body.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, b.over
	}
	return n, err
}

func (b *limitedBody) Close() error { return b.body.Close() }

// Decoding is the interceptor that ends the decoding turn of a message after it
// was decoded, drops its unknown fields, and reduces its charge to the memory that
// it needs now. The messages of SendCommand and QueryEntity, which end their charge
// themselves, stay as they are. It must be the outermost interceptor.
type Decoding struct{}

// WrapUnary implements connect.Interceptor.
func (Decoding) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		charge := ChargeOf(ctx)
		if p := procedure.At(req.Spec().Procedure); charge != nil && (p == nil || !p.HandChecked) {
			if m, ok := req.Any().(proto.Message); ok {
				if err := charge.retain(m); err != nil {
					return nil, err
				}
			}
		}
		charge.EndDecoding()
		return next(ctx, req)
	}
}

// WrapStreamingClient implements connect.Interceptor; a server has no clients.
func (Decoding) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor. The service of SendCommandStream
// decodes its messages itself.
func (Decoding) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		charge := ChargeOf(ctx)
		if p := procedure.At(conn.Spec().Procedure); charge == nil || p != nil && p.OwnCodec {
			return next(ctx, conn)
		}
		return next(ctx, &decodingConn{conn, charge})
	}
}

type decodingConn struct {
	connect.StreamingHandlerConn
	charge *Charge
}

// Receive implements connect.StreamingHandlerConn. A server stream may last long,
// so its charge is reduced; other streams end the charge of a message when they
// read the next one.
func (c *decodingConn) Receive(into any) error {
	err := c.StreamingHandlerConn.Receive(into)
	if m, ok := into.(proto.Message); ok && err == nil && c.Spec().StreamType == connect.StreamTypeServer {
		err = c.charge.retain(m)
	}
	c.charge.EndDecoding()
	return err
}
