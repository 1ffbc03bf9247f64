package leaderproxy

import (
	"context"
	"net/http"

	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding"
)

// peerKey is the context key of the *principal.Said of a call that a different
// node forwarded.
type peerKey struct{}

// nodeKey is the context key of NodeOf.
type nodeKey struct{}

// WithNode records the node from which a call came.
func WithNode(ctx context.Context, node sharding.NodeID) context.Context {
	return context.WithValue(ctx, nodeKey{}, node)
}

// NodeOf returns the node from which a call came; empty for a call of a client.
func NodeOf(ctx context.Context) sharding.NodeID {
	node, _ := ctx.Value(nodeKey{}).(sharding.NodeID)
	return node
}

// HeaderOf returns the header that identifies the caller of ctx to a different
// node.
func HeaderOf(ctx context.Context) string {
	return principal.HeaderOf(principal.Said{Caller: Caller(ctx), Roles: RolesOf(ctx)})
}

// rolesKey is the context key of RolesOf.
type rolesKey struct{}

// FromPeer reports whether a different node forwarded the call for its caller.
// Such a call must not be forwarded again.
func FromPeer(ctx context.Context) bool { return ctx.Value(peerKey{}) != nil }

// SaidOf returns what the forwarding node states about a call; nil if the call
// was not forwarded.
func SaidOf(ctx context.Context) *principal.Said {
	s, _ := ctx.Value(peerKey{}).(*principal.Said)
	return s
}

// Caller returns the caller of a call: identified by its credential, or by what
// the forwarding node states. It is nil if the caller was not authenticated.
func Caller(ctx context.Context) *principal.Principal {
	if s := SaidOf(ctx); s != nil {
		return s.Caller
	}
	return authn.CallerOf(ctx)
}

// WithRoles records the revision of the roles that allowed a call.
func WithRoles(ctx context.Context, revision uint64) context.Context {
	return context.WithValue(ctx, rolesKey{}, revision)
}

// RolesOf returns the revision of the roles that allowed a call; 0 if none
// decided.
func RolesOf(ctx context.Context) uint64 {
	revision, _ := ctx.Value(rolesKey{}).(uint64)
	return revision
}

// parseStatement parses what a forwarding node states about a call.
func parseStatement(h http.Header) (*principal.Said, error) {
	if len(h[principal.Header]) > 1 {
		return nil, principal.ErrInvalid
	}
	s, err := principal.ParseHeader(h.Get(principal.Header))
	return &s, err
}

// Unsaid removes the header that names a caller, for clients that are not nodes.
func Unsaid(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		delete(r.Header, principal.Header)
		next.ServeHTTP(w, r)
	})
}

// Telling returns an HTTP client to a different node that sends the caller of
// each request's context, and uses paths that the previous release knows.
func Telling(c *http.Client) *http.Client {
	told := *c
	if told.Transport == nil {
		told.Transport = http.DefaultTransport
	}
	told.Transport = teller{formerPaths{told.Transport}}
	return &told
}

type teller struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t teller) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	value := HeaderOf(ctx)
	if value == "" {
		return t.next.RoundTrip(r)
	}
	r = r.Clone(ctx)
	r.Header[principal.Header] = []string{value}
	return t.next.RoundTrip(r)
}
