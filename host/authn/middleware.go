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

// Wrap lets requests through to next that are of somebody, before anything of
// their body is read. Probes of health pass by it, and so does /metrics for
// callers on this machine. addressOf is what of the remote address of a request
// is one caller's.
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

// open reports whether a request is answered whoever sends it.
func open(r *http.Request) bool {
	switch r.URL.Path {
	case "/livez", "/readyz":
		return true
	case "/metrics":
		return FromThisMachine(r)
	}
	return strings.HasPrefix(r.URL.Path, "/"+grpchealth.HealthV1ServiceName+"/")
}

// forwarded are the headers by which proxies say for whom they ask.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"}

// FromThisMachine reports whether a program of this machine asks. A proxy there
// that says for whom it asks is not taken for its clients, which may be anywhere.
func FromThisMachine(r *http.Request) bool {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && at.Addr().Unmap().IsLoopback() &&
		!slices.ContainsFunc(forwarded, func(name string) bool { return len(r.Header[name]) > 0 })
}

// drainPatience is how long the server may read away what is left of the body
// of a request that was refused: 256 KiB at most, and nothing of a longer one.
const drainPatience = time.Second

// refuse answers a request that is not let in.
func (a *Authenticator) refuse(w http.ResponseWriter, r *http.Request, write *connect.ErrorWriter, fail *failure, address string) {
	a.metrics.failures.WithLabelValues(methodOf(r), fail.reason).Inc()
	if a.opts.Refused != nil {
		a.opts.Refused(r, fail.reason)
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
		// HTTP/1 reads the end of a short body to keep the connection. It is not to
		// wait for one that comes slowly.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainPatience))
	}
	if write.IsSupported(r) {
		_ = write.Write(w, r, answer) // the caller may have gone
		return
	}
	http.Error(w, answer.Message(), status)
}

// Streams ends streams with unauthenticated when their credential has expired
// or is not valid any more. Of a stream that brings input none is read any more
// and what was read is answered; another one is cancelled.
func (a *Authenticator) Streams() connect.Interceptor { return streamEnder{a} }

type streamEnder struct{ a *Authenticator }

// WrapUnary implements connect.Interceptor: calls are short.
func (e streamEnder) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

// WrapStreamingClient implements connect.Interceptor; a server has no clients.
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
			e.a.recheck(ctx, s) // the token may have gone before the stream was known
		}
		err := next(ctx, conn)
		e.a.streams.remove(s)
		if why := s.leave(); why != nil {
			return connect.NewError(why.code, why.err)
		}
		return err
	}
}

// enter is called when a stream begins: abort ends it and does not wait.
func (s *session) enter(abort func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abort = abort
}

// end ends the stream, once, unless it has ended by itself.
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

// leave is called when a stream has ended. Nothing aborts it any more: what
// abort uses is not to be used then. It returns why the stream was ended.
func (s *session) leave() *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abort = nil
	return s.ended
}
