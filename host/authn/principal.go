package authn

import (
	"context"
	"time"

	"github.com/hostd/hostd/host/principal"
)

// Kind says what a principal was known by.
type Kind = principal.Kind

// The kinds of principals.
const (
	KindAnonymous   = principal.Anonymous
	KindToken       = principal.Token
	KindJWT         = principal.JWT
	KindCertificate = principal.Certificate
)

// Principal is who calls, as the credential says. It is shared between calls:
// nobody changes it.
type Principal struct {
	*principal.Principal
	// Claims are all that the issuer says; nil for other kinds.
	Claims map[string]any
	// Expires is when the credential ends; the zero time is never.
	Expires time.Time
}

// anonymous is who calls without a credential.
var anonymous = &Principal{Principal: principal.OfNobody()}

// nobody is the session of requests without a credential, where one may be
// shown.
var nobody = &session{principal: anonymous}

// sessionKey is the context's key for the *session of a request.
type sessionKey struct{}

// Of returns who makes a request, by its context. It is the anonymous where
// nobody was asked for a credential. It is never nil.
func Of(ctx context.Context) *Principal {
	if s, ok := ctx.Value(sessionKey{}).(*session); ok {
		return s.principal
	}
	return anonymous
}

// Asked is who makes a request, nil where nobody was asked for a credential.
func Asked(ctx context.Context) *principal.Principal {
	if s, ok := ctx.Value(sessionKey{}).(*session); ok {
		return s.principal.Principal
	}
	return nil
}
