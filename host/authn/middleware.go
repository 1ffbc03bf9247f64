package authn

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Wrap returns a handler that authenticates requests before it reads their
// bodies, and passes accepted requests to next. Health checks need no
// credential, and neither does /metrics for callers on this machine.
// addressOf returns the part of a remote address by which rejected requests
// are counted.
func (a *Authenticator) Wrap(next http.Handler, addressOf func(remote string) string) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if open(r) {
			next.ServeHTTP(w, r)
			return
		}
		p, credential, fail := a.authenticate(r)
		if fail != nil {
			a.refuse(w, r, refuse, fail, addressOf(r.RemoteAddr))
			return
		}
		a.metrics.kinds[p.Kind].Inc()
		s := nobody
		if p != anonymous {
			s = &session{principal: p, credential: credential, w: w}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sessionKey{}, s)))
	})
}

// open reports whether a request needs no credential.
func open(r *http.Request) bool {
	switch r.URL.Path {
	case "/livez", "/readyz":
		return true
	case "/metrics":
		return FromThisMachine(r)
	}
	return strings.HasPrefix(r.URL.Path, "/"+grpchealth.HealthV1ServiceName+"/")
}

// forwarded are the headers that proxies add.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"}

// FromThisMachine reports whether a program on this machine has sent the
// request. For a request that a local proxy forwarded it returns false,
// because the client may be anywhere.
func FromThisMachine(r *http.Request) bool {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && at.Addr().Unmap().IsLoopback() &&
		!slices.ContainsFunc(forwarded, func(name string) bool { return len(r.Header[name]) > 0 })
}

// drainPatience bounds how long the server drains the body of a rejected
// request. It drains at most 256 KiB, and nothing of a longer body.
const drainPatience = time.Second

// refuse answers a rejected request.
func (a *Authenticator) refuse(w http.ResponseWriter, r *http.Request, write *connect.ErrorWriter, fail *failure, address string) {
	a.metrics.failures.WithLabelValues(methodOf(r), fail.reason).Inc()
	if a.opts.Audit != nil {
		a.opts.Audit.RecordRefused(r, fail.reason)
	}
	answer := connect.NewError(fail.code, fail.err)
	status := http.StatusUnauthorized
	switch {
	case a.failures.tooMany(address, a.opts.Now()):
		answer, status = connect.NewError(connect.CodeResourceExhausted, errTooMany), http.StatusTooManyRequests
		if d, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)}); err == nil {
			answer.AddDetail(d)
		}
		w.Header().Set("Retry-After", "1")
	case fail.code == connect.CodeUnauthenticated:
		w.Header().Set("WWW-Authenticate", "Bearer")
	default:
		status = http.StatusServiceUnavailable
	}
	if r.Body != nil && r.Body != http.NoBody {
		// HTTP/1 drains the rest of a short body to keep the connection open.
		// It must not wait for a body that arrives slowly.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainPatience))
	}
	if write.IsSupported(r) {
		_ = write.Write(w, r, answer) // the caller may be gone
		return
	}
	http.Error(w, answer.Message(), status)
}

// Streams returns an interceptor that ends streams with unauthenticated when
// their credential has expired or is no longer valid. If the stream has client
// messages, it stops reading, and messages that were read are still answered.
// Any other stream is canceled.
func (a *Authenticator) Streams() connect.Interceptor { return streamEnder{a} }

type streamEnder struct{ a *Authenticator }

// WrapUnary implements connect.Interceptor. Unary calls are not ended, because
// they are short.
func (e streamEnder) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

// WrapStreamingClient implements connect.Interceptor. A server never uses it.
func (e streamEnder) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (e streamEnder) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		s, ok := ctx.Value(sessionKey{}).(*session)
		if !ok || s == nobody {
			return next(ctx, conn)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		abort := cancel
		if conn.Spec().StreamType&connect.StreamTypeClient != 0 {
			control := http.NewResponseController(s.w)
			abort = func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }
		}
		s.enter(abort)
		e.a.streams.add(s)
		if s.principal.Kind == KindToken {
			e.a.recheck(ctx, s) // the token may have been removed before add
		}
		err := next(ctx, conn)
		e.a.streams.remove(s)
		if why := s.leave(); why != nil {
			return connect.NewError(why.code, why.err)
		}
		return err
	}
}

// enter registers the start of a stream. abort ends the stream and must not
// block.
func (s *session) enter(abort func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abort = abort
}

// end ends the stream, unless it has ended already, and reports whether it did.
func (s *session) end(why *failure) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.abort == nil || s.ended != nil {
		return false
	}
	s.ended = why
	s.abort()
	return true
}

// leave registers that the handler of a stream has returned. abort is not
// called after that, because it uses the response. leave returns why the stream
// was ended, or nil.
func (s *session) leave() *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abort = nil
	return s.ended
}
