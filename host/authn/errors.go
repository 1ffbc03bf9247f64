package authn

import (
	"errors"

	"connectrpc.com/connect"
)

// failure is why a request is rejected. The caller sees its text, so the text
// must not help to guess a valid credential.
type failure struct {
	reason string // label of the metric
	code   connect.Code
	err    error
}

func authFailure(reason, text string) *failure {
	return &failure{reason, connect.CodeUnauthenticated, errors.New(text)}
}

// The failures. An unknown static token and a token in an unknown format get
// the same text.
var (
	failMissing     = authFailure("missing", "this node requires a credential: send 'Authorization: Bearer TOKEN', or a client certificate if the node accepts those")
	failMalformed   = authFailure("malformed", "the Authorization header must be 'Bearer TOKEN'")
	failUnknown     = authFailure("unknown", "the token is not valid")
	failExpired     = authFailure("expired", "the token has expired")
	failSignature   = authFailure("signature", "the token is not valid: no key of the issuer made its signature")
	failAlgorithm   = authFailure("algorithm", "the token is not valid: it must be signed with RS256, ES256 or EdDSA")
	failIssuer      = authFailure("issuer", "the token is not valid: it has a different issuer")
	failAudience    = authFailure("audience", "the token is not valid: it was issued for a different audience")
	failClaims      = authFailure("claims", "the token is not valid: a claim is missing or wrong")
	failCertName    = authFailure("cert_name", "the certificate does not identify the caller: it must have exactly one name of the kind that auth-cert-name sets")
	failNodeCert    = authFailure("cert_node", "the certificate belongs to a node: clients need one from 'hostd cert create-client'")
	failCertExpired = authFailure("cert_expired", "the certificate of this connection has expired: connect with a new one")
	failRevoked     = authFailure("revoked", "the credential of this stream is no longer valid")
	// failKeys doesn't mean that the token is invalid; the caller may retry.
	failKeys = &failure{"keys", connect.CodeUnavailable, errors.New("the node has no signing keys of the token's issuer, because the provider does not answer: try again")}
	// failUnasked doesn't mean that the token is invalid: the issuer may have
	// created its key recently.
	failUnasked = &failure{"keys", connect.CodeUnavailable, errors.New("the node does not know the token's signing key and cannot fetch it from the provider now: try again")}
	// failBehind doesn't mean that the token is invalid: the metadata may
	// contain it.
	failBehind = &failure{"behind", connect.CodeUnavailable, errors.New("the node does not know the token, and has not caught up with the cluster's tokens yet: try again")}
	// errTooMany is the error for addresses that keep sending rejected
	// requests.
	errTooMany = errors.New("too many requests from this address had an invalid credential: retry in a second")
)
