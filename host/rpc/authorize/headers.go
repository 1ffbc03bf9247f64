package authorize

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/audit"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/rpc/admission"
	"github.com/hostd/hostd/host/status"
)

// drainPatience is how long the server may read away what is left of the body
// of a call that was refused by its headers.
const drainPatience = time.Second

// refusedKey is the context's key for why a call was refused by its headers.
type refusedKey struct{}

// ByHeaders refuses calls before anything of their body is read, if the caller
// has no rule at all for the procedure's verb. It decides no more than that:
// what a call is about is in its body, and Interceptor decides it.
//
// A refused call still passes all interceptors, which count it and write it to
// the audit log, because those have no other place in a unary call. It passes
// them with an empty message in the place of its own.
func (a *Authorizer) ByHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t, known := a.targets[r.URL.Path]
		if !known || t.founding {
			next.ServeHTTP(w, r)
			return
		}
		by := makerOf(r.Context())
		revision, err := a.decide(by, target{verb: t.verb, later: true}, authz.Call{Verb: t.verb})
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		if r.Body != nil && r.Body != http.NoBody {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainPatience))
		}
		r = r.WithContext(context.WithValue(admission.Emptied(r.Context()), refusedKey{}, &refusedCall{revision, err}))
		withoutBody(r)
		next.ServeHTTP(w, r)
	})
}

// ForAdmins serves who may admin the cluster. It is for what is no procedure and
// does as one that needs that verb.
func (a *Authorizer) ForAdmins(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := a.ask(r.Context(), target{verb: authv1.Verb_ADMIN}, authz.Call{Verb: authv1.Verb_ADMIN})
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		answer, code := status.Public(log, err), http.StatusServiceUnavailable
		if answer.Code() == connect.CodePermissionDenied {
			code = http.StatusForbidden
		}
		http.Error(w, answer.Message(), code)
	})
}

// refusedCall is why a call was refused by its headers.
type refusedCall struct {
	revision uint64 // of the roles that say so
	err      error
}

// byHeaders returns why the call was refused by its headers, and counts it.
func (a *Authorizer) byHeaders(ctx context.Context, t target) error {
	c, _ := ctx.Value(refusedKey{}).(*refusedCall)
	if c == nil {
		return nil
	}
	a.refused[t.verb].Inc()
	audit.Decided(ctx, c.revision)
	return c.err
}

// withoutBody gives a call an empty message in the place of its own.
func withoutBody(r *http.Request) {
	kind := r.Header.Get("Content-Type")
	plain, _, _ := strings.Cut(kind, ";")
	var message []byte
	if strings.HasSuffix(strings.TrimSpace(strings.ToLower(plain)), "json") {
		message = []byte("{}")
	}
	if strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect+") {
		message = append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
	}
	if r.Method == http.MethodGet {
		given := r.URL.Query()
		given.Del("base64")
		given.Del("compression")
		given.Set("message", "")
		if strings.HasPrefix(given.Get("encoding"), "json") {
			given.Set("message", "{}")
		}
		u := url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: r.URL.Path, RawQuery: given.Encode()}
		r.URL = &u
		return
	}
	r.Header = r.Header.Clone()
	for _, name := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding", "Content-Length"} {
		r.Header.Del(name)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(message)), int64(len(message))
}
