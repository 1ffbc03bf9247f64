// Package authn identifies callers: it derives a Principal from the credential
// of a request before it reads the request's body. It does not decide what a
// principal may do.
//
// The owner of an Authenticator runs Run in one goroutine. Run reads files of
// credentials and keys again when they change, fetches the issuer's keys, and
// ends streams whose credential is no longer valid. The tokens stored in the
// metadata are passed to SetTokens.
package authn
