package authn

import (
	"context"
	"time"
)

// Kind says what a principal was known by.
type Kind string

// The kinds of principals.
const (
	KindAnonymous Kind = "anonymous" // there was no credential
	KindToken     Kind = "token"     // a static token of the token file
	KindJWT       Kind = "jwt"       // a token that an issuer has signed
	// KindCertificate is a certificate that the client showed.
	KindCertificate Kind = "certificate"
)

// Principal is who calls. It is shared between calls: nobody changes it.
type Principal struct {
	Kind Kind
	// Name is unique within its kind; empty for the anonymous.
	Name string
	// Groups are those that the issuer names.
	Groups []string
	// Claims are all that the issuer says; nil for other kinds.
	Claims map[string]any
	// Expires is when the credential ends; the zero time is never.
	Expires time.Time
}

// anonymous is who calls without a credential.
var anonymous = &Principal{Kind: KindAnonymous}

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
