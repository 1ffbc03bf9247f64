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
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/procedure"
	"github.com/hostd/hostd/host/status"
)

// drainPatience is how long the server may spend reading the rest of a body
// whose call was rejected by its headers.
const drainPatience = time.Second

// refusedKey is the context key of the *refusedCall of a call that was rejected
// by its headers.
type refusedKey struct{}

// ByHeaders rejects a call before any of its body is read if the caller has no
// rule at all for the procedure's verb. ByHeaders decides no more than that,
// because the types and entities that a call concerns are named in its body;
// Interceptor decides about these.
//
// A rejected call still passes all interceptors with an empty message instead of
// its own, because only they can count a unary call and write it to the audit
// log.
func (a *Authorizer) ByHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := procedure.At(r.URL.Path)
		if t == nil || t.Scope == procedure.Founding {
			next.ServeHTTP(w, r)
			return
		}
		by := makerOf(r.Context())
		revision, err := a.decide(by, &procedure.Procedure{Verb: t.Verb, Scope: procedure.Later}, authz.Call{Verb: t.Verb})
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		if r.Body != nil && r.Body != http.NoBody {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainPatience))
		}
		r = r.WithContext(context.WithValue(admission.WithEmptyMessage(r.Context()), refusedKey{}, &refusedCall{revision, err}))
		withoutBody(r)
		next.ServeHTTP(w, r)
	})
}

// ForAdmins serves only callers with the verb admin on the cluster. It is for endpoints
// that are not RPCs and require the same right.
func (a *Authorizer) ForAdmins(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := a.ask(r.Context(), &procedure.Procedure{Verb: authv1.Verb_ADMIN}, authz.Call{Verb: authv1.Verb_ADMIN})
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

// refusedCall says why a call was rejected by its headers.
type refusedCall struct {
	revision uint64 // revision of the roles that decided
	err      error
}

// byHeaders returns the error of a call that was rejected by its headers, and
// counts it.
func (a *Authorizer) byHeaders(ctx context.Context, t *procedure.Procedure) error {
	c, _ := ctx.Value(refusedKey{}).(*refusedCall)
	if c == nil {
		return nil
	}
	a.refused[t.Verb].Inc()
	audit.SetPolicyRevision(ctx, c.revision)
	return c.err
}

// withoutBody replaces the message of a call by an empty one.
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
