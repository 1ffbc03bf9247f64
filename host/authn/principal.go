package authn

import (
	"context"
	"time"

	"github.com/hostd/hostd/host/principal"
)

// kind is the kind of credential that identified a principal.
type kind = principal.Kind

// Values of Kind.
const (
	KindAnonymous   = principal.Anonymous
	KindToken       = principal.Token
	KindJWT         = principal.JWT
	KindCertificate = principal.Certificate
)

// Principal is an identified caller. Calls share it, so it is immutable.
type Principal struct {
	*principal.Principal
	// Claims are all claims of a JWT; nil for other kinds.
	Claims map[string]any
	// Expires is the expiry of the credential; zero means never.
	Expires time.Time
}

// anonymous is the principal of requests without a credential.
var anonymous = &Principal{Principal: principal.OfNobody()}

// nobody is the session of all requests without a credential.
var nobody = &session{principal: anonymous}

// sessionKey is the context key of a request's *session.
type sessionKey struct{}

// Of returns the caller of a request from its context. It returns anonymous if
// requests are not authenticated. It never returns nil.
func Of(ctx context.Context) *Principal {
	if s, ok := ctx.Value(sessionKey{}).(*session); ok {
		return s.principal
	}
	return anonymous
}

// CallerOf returns the caller of a request, or nil if requests are not
// authenticated.
func CallerOf(ctx context.Context) *principal.Principal {
	if s, ok := ctx.Value(sessionKey{}).(*session); ok {
		return s.principal.Principal
	}
	return nil
}
