package authorize

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/procedure"
	"github.com/hostd/hostd/host/status"
)

// Interceptor returns the interceptor that rejects calls. It must run after the
// interceptors that record rejections, and before everything that looks at a
// request.
func (a *Authorizer) Interceptor() connect.Interceptor { return interceptor{a} }

type interceptor struct{ a *Authorizer }

// WrapUnary implements connect.Interceptor.
func (i interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		t := procedure.At(req.Spec().Procedure)
		if t == nil {
			return next(ctx, req)
		}
		if err := i.a.byHeaders(ctx, t); err != nil {
			return nil, status.Public(i.a.opts.Logger, err)
		}
		if err := i.a.confirm(ctx, t); err != nil {
			return nil, status.Public(i.a.opts.Logger, err)
		}
		calls := i.a.calls(t, req.Any())
		ctx = i.a.mark(ctx, t) // mark first: roles that are in force now are in force for the decision too
		if less, narrowed := i.a.narrow(ctx, t, calls[0]); narrowed {
			return next(less, req)
		}
		if err := i.a.checkAll(ctx, t, calls); err != nil {
			return nil, status.Public(i.a.opts.Logger, err)
		}
		return next(ctx, req)
	}
}

// WrapStreamingClient implements connect.Interceptor; a server has no clients.
func (i interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor. A stream with input
// messages is decided before any input is read, other streams when their first
// message says what they are about. When a change of roles ends a stream with
// input, reading stops and the messages that were read are still answered; any
// other stream is cancelled.
func (i interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		t := procedure.At(conn.Spec().Procedure)
		if t == nil {
			return next(ctx, conn)
		}
		if err := i.a.byHeaders(ctx, t); err != nil {
			return status.Public(i.a.opts.Logger, err)
		}
		if err := i.a.confirm(ctx, t); err != nil {
			return status.Public(i.a.opts.Logger, err)
		}
		ctx, cancel := context.WithCancel(i.a.mark(ctx, t))
		defer cancel()
		s := &openStream{a: i.a, by: makerOf(ctx), target: t, calls: []authz.Call{{Verb: t.Verb}}, abort: cancel}
		defer i.a.streams.remove(s)
		var err error
		if conn.Spec().StreamType&connect.StreamTypeClient != 0 {
			if control := admission.Control(ctx); control != nil {
				s.abort = func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }
			}
			s.calls = i.a.calls(t, nil)
			if err = s.enter(ctx); err == nil {
				err = next(ctx, conn)
			}
		} else {
			err = next(ctx, &firstMessage{conn, func(m any) error {
				s.calls = i.a.calls(t, m)
				return s.enter(ctx)
			}})
		}
		if why := s.leave(); why != nil {
			return status.Public(i.a.opts.Logger, why)
		}
		return err
	}
}

// firstMessage decides a server stream by its request message.
type firstMessage struct {
	connect.StreamingHandlerConn
	decide func(request any) error // nil after the decision
}

// Receive implements connect.StreamingHandlerConn. Only one goroutine may call
// it.
func (f *firstMessage) Receive(into any) error {
	if err := f.StreamingHandlerConn.Receive(into); err != nil || f.decide == nil {
		return err
	}
	decide := f.decide
	f.decide = nil
	return decide(into)
}

// openStream is a stream that was allowed.
type openStream struct {
	a      *Authorizer
	by     maker
	target *procedure.Procedure
	calls  []authz.Call

	mu    sync.Mutex
	abort func() // nil after the stream has ended
	why   error  // why it was ended or rejected
}

// enter decides the stream. It registers the stream first, so that a change of
// the table during the decision is not missed.
func (s *openStream) enter(ctx context.Context) error {
	s.a.streams.add(s)
	err := s.a.checkAll(ctx, s.target, s.calls)
	if err == nil {
		return nil
	}
	public := status.Public(s.a.opts.Logger, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = public
	return public
}

// end ends the stream, once, unless it has ended by itself.
func (s *openStream) end(why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.abort == nil || s.why != nil {
		return false
	}
	s.why = why
	s.abort()
	return true
}

// leave is called when the stream has ended. It makes sure that abort is not
// called any more, because the connection that abort uses is invalid then. It
// returns why the stream was ended.
func (s *openStream) leave() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abort = nil
	return s.why
}

// openStreams is the set of open streams. The limits on connections, and on
// streams per connection, bound its size.
type openStreams struct {
	mu   sync.Mutex
	open map[*openStream]struct{}
}

func (o *openStreams) add(s *openStream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[*openStream]struct{}{}
	}
	o.open[s] = struct{}{}
}

func (o *openStreams) remove(s *openStream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, s)
}

func (o *openStreams) list() []*openStream {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]*openStream, 0, len(o.open))
	for s := range o.open {
		out = append(out, s)
	}
	return out
}
