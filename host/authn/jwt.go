package authn

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/hostd/hostd/host/principal"
)

// JWTOptions configures which signed tokens are accepted.
type JWTOptions struct {
	// Issuer is the URL in the iss claim of tokens. The provider publishes its
	// keys below it (OpenID Connect Discovery 1.0).
	Issuer string
	// Audience must be among the audiences of a token.
	Audience string
	// Parties are the clients besides Audience that a token may have been
	// issued to, according to its azp claim; "*" means all.
	Parties []string
	// NameClaim and GroupsClaim are the claims with the principal's name and
	// groups.
	NameClaim, GroupsClaim string
	// KeysFile holds the keys of the issuer as a JWK set (RFC 7517). If it is
	// set, the provider is not contacted.
	KeysFile string
	// Client makes the requests to the provider; nil means a default one.
	Client *http.Client
}

const (
	// jwtLeeway is the tolerance for clock skew between the issuer and the
	// node.
	jwtLeeway = 30 * time.Second
	// maxVerified bounds the cache of tokens whose signature was verified.
	maxVerified = 1024
	// maxClaimBytes bounds the length of a name and of each group.
	maxClaimBytes = 256
	maxGroups     = 256
)

// algorithms are the accepted signature algorithms. All of them are asymmetric,
// so a public key can never be used as an HMAC secret.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

// jwtVerifier verifies tokens signed by an issuer. It is safe for concurrent
// use.
type jwtVerifier struct {
	opts JWTOptions
	now  func() time.Time
	keys *keySet
	oidc *oidc.IDTokenVerifier

	mu sync.Mutex
	// verified caches the tokens whose signatures were verified with keys of
	// version.
	verified map[[sha256.Size]byte]*Principal
	version  uint64
}

func newJWTVerifier(o JWTOptions, now func() time.Time, logger *slog.Logger) *jwtVerifier {
	if o.Client == nil {
		o.Client = &http.Client{Timeout: fetchPatience}
	}
	client := *o.Client
	client.Transport = guarded{base: client.Transport, plain: strings.HasPrefix(strings.ToLower(o.Issuer), "http://")}
	o.Client = &client
	v := &jwtVerifier{opts: o, now: now, keys: newKeySet(o, now, logger)}
	// The oidc verifier only checks the signature. Its checks of claims are not
	// used, because it matches their names case-insensitively and does not
	// bound times.
	v.oidc = oidc.NewVerifier(o.Issuer, v.keys, &oidc.Config{
		SupportedSigningAlgs: func() (names []string) {
			for _, a := range algorithms {
				names = append(names, string(a))
			}
			return names
		}(),
		SkipIssuerCheck: true, SkipClientIDCheck: true, SkipExpiryCheck: true,
	})
	return v
}

// setKeys replaces the keys by the keys in a file.
func (v *jwtVerifier) setKeys(text []byte) error { return v.keys.take(text) }

// resultKey is the context key of the *cachedResult of a token.
type resultKey struct{}

// cachedResult carries the result of the signature check out of the oidc verifier.
type cachedResult struct {
	fetch  bool // input: the provider may be contacted
	signed bool // a key of the issuer has signed the token
	noKeys bool // there are no usable keys
	// unasked means that the provider may have published the token's key since
	// the node last fetched the keys.
	unasked bool
}

// verify identifies the owner of a token.
func (v *jwtVerifier) verify(ctx context.Context, token string, fetch bool) (*Principal, *failure) {
	hash := sha256.Sum256([]byte(token))
	version, usable := v.keys.current()
	if p := v.cachedPrincipal(hash, version); p != nil && usable {
		if !v.now().Before(p.Expires.Add(jwtLeeway)) {
			return nil, failExpired
		}
		return p, nil
	}
	said := &cachedResult{fetch: fetch}
	ctx = context.WithValue(ctx, resultKey{}, said)
	checked, err := v.oidc.Verify(ctx, token)
	if err != nil {
		return nil, v.why(token, said)
	}
	if ofAnotherKind(token) {
		return nil, failClaims
	}
	var claims map[string]any
	if checked.Claims(&claims) != nil {
		return nil, failClaims
	}
	expires, fail := v.check(claims)
	if fail != nil {
		return nil, fail
	}
	p, ok := v.principal(claims, expires)
	if !ok {
		return nil, failClaims
	}
	v.keep(hash, p, version)
	return p, nil
}

// check checks the claims of a token with a valid signature and returns its
// expiry. Claim names are case-sensitive (RFC 7519, section 4), so "EXP" is an
// unknown claim.
func (v *jwtVerifier) check(claims map[string]any) (expires time.Time, fail *failure) {
	for _, claim := range []string{"iat", "nbf", "exp"} {
		if value, ok := claims[claim]; ok && !isTime(value) {
			return expires, failClaims
		}
	}
	now := v.now()
	from, _ := claims["nbf"].(float64)
	until, _ := claims["exp"].(float64)
	expires = time.Unix(int64(until), 0)
	_, isEvent := claims["events"].(map[string]any)
	switch {
	case until <= 0: // there is no expiry
		return expires, failClaims
	case expires.Before(now.Add(-jwtLeeway)):
		return expires, failExpired
	case !v.isIssuer(claims["iss"]):
		return expires, failIssuer
	case claims["aud"] != v.opts.Audience && !isAmong(v.opts.Audience, claims["aud"]):
		return expires, failAudience
	case !v.issuedTo(claims): // issued to another client
		return expires, failAudience
	case isEvent: // a security event, such as a logout, not a credential
		return expires, failClaims
	case v.opts.NameClaim == "email" && claims["email_verified"] != nil && claims["email_verified"] != true && claims["email_verified"] != "true":
		return expires, failClaims // the address may belong to somebody else
	case now.Add(jwtLeeway).Before(time.Unix(int64(from), 0)):
		return expires, failClaims
	}
	return expires, nil
}

// ofAnotherKind reports whether the header of a token says that the token is
// not a credential, such as a logout+jwt (RFC 8725, section 3.11). The issuer
// may have signed it with the same key. Most credentials have the type JWT or
// none.
func ofAnotherKind(token string) bool {
	var header struct {
		Type string `json:"typ"`
	}
	head, _, _ := strings.Cut(token, ".")
	if !decodePart(head, &header) {
		return true // cannot happen, because the token was verified
	}
	kind := strings.TrimPrefix(strings.ToLower(header.Type), "application/")
	return strings.HasSuffix(kind, "+jwt") && kind != "at+jwt"
}

// isIssuer reports whether a claim names the issuer. Google uses two names.
func (v *jwtVerifier) isIssuer(claim any) bool {
	return claim == v.opts.Issuer || v.opts.Issuer == "https://accounts.google.com" && claim == "accounts.google.com"
}

// issuedTo reports whether a token was issued to an accepted client. A token
// without an azp claim was issued to its audience.
func (v *jwtVerifier) issuedTo(claims map[string]any) bool {
	azp, said := claims["azp"]
	party, text := azp.(string)
	return !said || text && (party == v.opts.Audience || slices.Contains(v.opts.Parties, party) || slices.Contains(v.opts.Parties, "*"))
}

// maxTime is the last second of the year 9999, in Unix time.
const maxTime = 253_402_300_799

// isTime reports whether a claim is a valid Unix time in seconds.
func isTime(claim any) bool {
	at, number := claim.(float64)
	return number && at >= 0 && at <= maxTime
}

// unprintable reports whether a name contains invalid UTF-8 or characters that
// are not printable. Such a name could be mistaken for another name.
func unprintable(name string) bool {
	return strings.ContainsFunc(name, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) })
}

// principal builds the principal from the claims of a token.
func (v *jwtVerifier) principal(claims map[string]any, expires time.Time) (*Principal, bool) {
	name, _ := claims[v.opts.NameClaim].(string)
	if name == "" || len(name) > maxClaimBytes || unprintable(name) {
		return nil, false
	}
	var in []string
	switch groups := claims[v.opts.GroupsClaim].(type) {
	case nil:
	case string:
		in = []string{groups}
	case []any:
		for _, g := range groups {
			group, ok := g.(string)
			if !ok {
				return nil, false
			}
			in = append(in, group)
		}
	default:
		return nil, false
	}
	wrong := func(g string) bool { return len(g) > maxClaimBytes || unprintable(g) }
	if len(in) > maxGroups || slices.ContainsFunc(in, wrong) {
		return nil, false
	}
	p, err := principal.New(KindJWT, name, in)
	return &Principal{Principal: p, Claims: claims, Expires: expires}, err == nil
}

// why returns the failure for a token whose signature was rejected.
func (v *jwtVerifier) why(token string, said *cachedResult) *failure {
	var header struct {
		Alg string `json:"alg"`
	}
	var claims map[string]any
	parts := strings.Split(token, ".")
	if !decodePart(parts[0], &header) || !decodePart(parts[1], &claims) {
		return failUnknown
	}
	switch {
	case !slices.Contains(algorithms, jose.SignatureAlgorithm(header.Alg)):
		return failAlgorithm
	case said.noKeys:
		return failKeys
	case said.unasked:
		return failUnasked
	case !said.signed:
		return failSignature
	}
	return failClaims
}

// isAmong reports whether a claim is a list that contains value.
func isAmong(value string, claim any) bool {
	list, _ := claim.([]any)
	return slices.Contains(list, any(value))
}

// decodePart decodes one part of a token and reports whether that worked.
func decodePart(part string, into any) bool {
	text, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(text, into) == nil
}

// cachedPrincipal returns the principal of a token that was already verified with keys of
// this version, or nil.
func (v *jwtVerifier) cachedPrincipal(hash [sha256.Size]byte, version uint64) *Principal {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.version != version {
		v.verified, v.version = nil, version
	}
	return v.verified[hash]
}

// keep caches a token verified with keys of this version, unless the version
// has changed since. If the cache is full, it drops arbitrary tokens.
func (v *jwtVerifier) keep(hash [sha256.Size]byte, p *Principal, version uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.version != version {
		return
	}
	if v.verified == nil {
		v.verified = make(map[[sha256.Size]byte]*Principal)
	}
	for old := range v.verified {
		if len(v.verified) < maxVerified {
			break
		}
		delete(v.verified, old)
	}
	v.verified[hash] = p
}
