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

// JWTOptions say whose signed tokens are taken.
type JWTOptions struct {
	// Issuer is the URL that tokens name as theirs, below which the provider
	// tells of its keys (OpenID Connect Discovery 1.0).
	Issuer string
	// Audience must be among those of a token.
	Audience string
	// Parties are the clients besides Audience to which a token may have been
	// issued, as its azp claim says; "*" is all.
	Parties []string
	// NameClaim and GroupsClaim are the claims that the principal's name and
	// groups are of.
	NameClaim, GroupsClaim string
	// KeysFile holds the keys of the issuer as a set of RFC 7517; the provider is
	// not asked then.
	KeysFile string
	// Client asks the provider; nil is one of the package's own.
	Client *http.Client
}

const (
	// jwtLeeway is how far the clocks of issuer and node may differ.
	jwtLeeway = 30 * time.Second
	// maxVerified bounds the tokens that are known to be valid without a look at
	// their signature.
	maxVerified = 1024
	// maxClaimBytes bounds a name, and each group.
	maxClaimBytes = 256
	maxGroups     = 256
)

// algorithms are those that tokens may be signed by. All are of public keys: a
// public key is never taken for a secret.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

// jwtVerifier knows callers by tokens that an issuer has signed. It is safe for
// concurrent use.
type jwtVerifier struct {
	opts JWTOptions
	now  func() time.Time
	keys *keySet
	oidc *oidc.IDTokenVerifier

	mu sync.Mutex
	// verified are the tokens whose signatures are by the keys of a version.
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
	// The verifier looks at the signature alone: it finds claims whatever their
	// case is, and has no bounds for times.
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

// setKeys takes the keys of a file.
func (v *jwtVerifier) setKeys(text []byte) error { return v.keys.take(text) }

// verdictKey is the context's key for what the key set says of a token.
type verdictKey struct{}

// verdict is what is known of a token's signature when it was looked at.
type verdict struct {
	fetch  bool // the provider may be asked
	signed bool // by a key of the issuer
	noKeys bool // there is none to look with
	// unasked says that the token's key may be one that the provider has by now.
	unasked bool
}

// verify says whose a token is.
func (v *jwtVerifier) verify(ctx context.Context, token string, fetch bool) (*Principal, *failure) {
	hash := sha256.Sum256([]byte(token))
	version, usable := v.keys.current()
	if p := v.known(hash, version); p != nil && usable {
		if !v.now().Before(p.Expires.Add(jwtLeeway)) {
			return nil, failExpired
		}
		return p, nil
	}
	said := &verdict{fetch: fetch}
	ctx = context.WithValue(ctx, verdictKey{}, said)
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

// check says what is wrong with the claims of a token that the issuer has
// signed, or when it expires. Names of claims are matched exactly (RFC 7519,
// section 4): "EXP" is a claim that nobody knows.
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
	case until <= 0: // it names no end
		return expires, failClaims
	case expires.Before(now.Add(-jwtLeeway)):
		return expires, failExpired
	case !v.issued(claims["iss"]):
		return expires, failIssuer
	case claims["aud"] != v.opts.Audience && !isAmong(v.opts.Audience, claims["aud"]):
		return expires, failAudience
	case !v.issuedTo(claims): // but to another client
		return expires, failAudience
	case isEvent: // it tells of something, such as a logout, and is no credential
		return expires, failClaims
	case v.opts.NameClaim == "email" && claims["email_verified"] != nil && claims["email_verified"] != true && claims["email_verified"] != "true":
		return expires, failClaims // the address may be anybody's
	case now.Add(jwtLeeway).Before(time.Unix(int64(from), 0)):
		return expires, failClaims
	}
	return expires, nil
}

// ofAnotherKind reports whether the header of a token says that it is something
// else than a credential (RFC 8725, section 3.11), such as logout+jwt: the same
// issuer may have signed it with the same key. Most credentials have the type
// JWT, or none.
func ofAnotherKind(token string) bool {
	var header struct {
		Type string `json:"typ"`
	}
	head, _, _ := strings.Cut(token, ".")
	if !decodePart(head, &header) {
		return true // it was verified, so it can be read
	}
	kind := strings.TrimPrefix(strings.ToLower(header.Type), "application/")
	return strings.HasSuffix(kind, "+jwt") && kind != "at+jwt"
}

// issued reports whether a claim names the issuer. Google's tokens name theirs
// in two ways.
func (v *jwtVerifier) issued(claim any) bool {
	return claim == v.opts.Issuer || v.opts.Issuer == "https://accounts.google.com" && claim == "accounts.google.com"
}

// issuedTo reports whether a token was issued to a client whose tokens are
// taken. One that does not say it is for its audience.
func (v *jwtVerifier) issuedTo(claims map[string]any) bool {
	azp, said := claims["azp"]
	party, text := azp.(string)
	return !said || text && (party == v.opts.Audience || slices.Contains(v.opts.Parties, party) || slices.Contains(v.opts.Parties, "*"))
}

// maxTime is the last second of the year 9999.
const maxTime = 253_402_300_799

// isTime reports whether a claim is seconds since 1970 that a time can hold.
func isTime(claim any) bool {
	at, number := claim.(float64)
	return number && at >= 0 && at <= maxTime
}

// unprintable reports whether a name has characters that do not show, by which
// it could look like another one, or bytes that were not UTF-8.
func unprintable(name string) bool {
	return strings.ContainsFunc(name, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) })
}

// principal is whom the claims of a token name.
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

// why says what is wrong with the signature of a token that was refused.
func (v *jwtVerifier) why(token string, said *verdict) *failure {
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

// isAmong reports whether a claim is a list with a value.
func isAmong(value string, claim any) bool {
	list, _ := claim.([]any)
	return slices.Contains(list, any(value))
}

// decodePart reads one part of a token, and reports whether it could.
func decodePart(part string, into any) bool {
	text, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(text, into) == nil
}

// known returns whose a token is that was verified by the same keys.
func (v *jwtVerifier) known(hash [sha256.Size]byte, version uint64) *Principal {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.version != version {
		v.verified, v.version = nil, version
	}
	return v.verified[hash]
}

// keep notes that a token was verified by the keys of a version, unless there
// are others by now. When there are too many tokens any one is forgotten.
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
