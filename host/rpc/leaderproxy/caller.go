package leaderproxy

import (
	"context"
	"net/http"

	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding"
)

// peerKey is the context's key for the *principal.Said of a call that came from
// another node.
type peerKey struct{}

// nodeKey is the context's key for the node from which a call came.
type nodeKey struct{}

// WithNode notes the node from which a call comes.
func WithNode(ctx context.Context, node sharding.NodeID) context.Context {
	return context.WithValue(ctx, nodeKey{}, node)
}

// NodeOf is the node from which a call came; empty for a call of a client.
func NodeOf(ctx context.Context) sharding.NodeID {
	node, _ := ctx.Value(nodeKey{}).(sharding.NodeID)
	return node
}

// HeaderOf is what another node is told of who makes the calls of a context.
func HeaderOf(ctx context.Context) string {
	return principal.HeaderOf(principal.Said{Caller: Caller(ctx), Roles: RolesOf(ctx)})
}

// rolesKey is the context's key for the revision of roles that allow a call.
type rolesKey struct{}

// FromPeer reports that a call came from another node, which has asked this one
// for its caller: it must not go on to a third.
func FromPeer(ctx context.Context) bool { return ctx.Value(peerKey{}) != nil }

// SaidOf is what the node says from which a call came; nil for another call.
func SaidOf(ctx context.Context) *principal.Said {
	s, _ := ctx.Value(peerKey{}).(*principal.Said)
	return s
}

// Caller is who makes a call: by its credential or, where it came from another
// node, by what that one says. It is nil where nobody was asked.
func Caller(ctx context.Context) *principal.Principal {
	if s := SaidOf(ctx); s != nil {
		return s.Caller
	}
	return authn.Asked(ctx)
}

// WithRoles notes the revision of the roles that allow a call.
func WithRoles(ctx context.Context, revision uint64) context.Context {
	return context.WithValue(ctx, rolesKey{}, revision)
}

// RolesOf is the revision of the roles that allow a call; 0 where none decided.
func RolesOf(ctx context.Context) uint64 {
	revision, _ := ctx.Value(rolesKey{}).(uint64)
	return revision
}

// said reads what a node says of a call.
func said(h http.Header) (*principal.Said, error) {
	if len(h[principal.Header]) > 1 {
		return nil, principal.ErrInvalid
	}
	s, err := principal.ParseHeader(h.Get(principal.Header))
	return &s, err
}

// Unsaid serves those who are no nodes: what they say of callers is not heard.
func Unsaid(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		delete(r.Header, principal.Header)
		next.ServeHTTP(w, r)
	})
}

// Telling is an HTTP client to another node that tells it who makes the call of
// a request's context.
func Telling(c *http.Client) *http.Client {
	told := *c
	if told.Transport == nil {
		told.Transport = http.DefaultTransport
	}
	told.Transport = teller{told.Transport}
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
