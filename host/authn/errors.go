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
	failMissing     = authFailure("missing", "this node answers callers with a credential only: send 'Authorization: Bearer TOKEN', or show a certificate where the node goes by those")
	failMalformed   = authFailure("malformed", "the Authorization header is not 'Bearer TOKEN'")
	failUnknown     = authFailure("unknown", "the token is not valid")
	failExpired     = authFailure("expired", "the token has expired")
	failSignature   = authFailure("signature", "the token is not valid: its signature is of no key of the issuer")
	failAlgorithm   = authFailure("algorithm", "the token is not valid: it must be signed by RS256, ES256 or EdDSA")
	failIssuer      = authFailure("issuer", "the token is not valid: it is of another issuer")
	failAudience    = authFailure("audience", "the token is not valid: it is for another audience")
	failClaims      = authFailure("claims", "the token is not valid: a claim is missing or wrong")
	failCertName    = authFailure("cert_name", "the certificate does not name its bearer: it has no such name as this node goes by, or several")
	failNodeCert    = authFailure("cert_node", "the certificate is of a node: clients have certificates of their own ('hostd cert create-client')")
	failCertExpired = authFailure("cert_expired", "the certificate of this connection has expired: connect with a new one")
	failRevoked     = authFailure("revoked", "the credential of this stream is not valid any more")
	// failKeys doesn't mean that the token is invalid; the caller may retry.
	failKeys = &failure{"keys", connect.CodeUnavailable, errors.New("the node has no keys of the issuer: its provider does not answer")}
	// failUnasked doesn't either: the issuer may have created the key recently.
	failUnasked = &failure{"keys", connect.CodeUnavailable, errors.New("the node does not know the token's key, and cannot ask the provider at the moment: try again")}
	// failBehind doesn't either: the metadata may contain the token.
	failBehind = &failure{"behind", connect.CodeUnavailable, errors.New("the node does not know the token, and has not caught up with those that its cluster keeps: try again")}
	// errTooMany is the error for addresses that keep sending rejected
	// requests.
	errTooMany = errors.New("too many requests of this address were refused for their credential: wait a second")
)
