package authn

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

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
	v.oidc = oidc.NewVerifier(o.Issuer, v.keys, &oidc.Config{
		ClientID: o.Audience,
		SupportedSigningAlgs: func() (names []string) {
			for _, a := range algorithms {
				names = append(names, string(a))
			}
			return names
		}(),
		Now: func() time.Time { return now().Add(-jwtLeeway) },
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
		return nil, v.why(token, said, err)
	}
	var claims map[string]any
	if checked.Claims(&claims) != nil {
		return nil, failClaims
	}
	p, ok := v.principal(claims, checked.Expiry)
	if !ok {
		return nil, failClaims
	}
	v.keep(hash, p, version)
	return p, nil
}

// principal is whom the claims of a token name.
func (v *jwtVerifier) principal(claims map[string]any, expires time.Time) (*Principal, bool) {
	if from, ok := claims["nbf"]; ok {
		at, number := from.(float64)
		if !number || v.now().Add(jwtLeeway).Before(time.Unix(int64(at), 0)) {
			return nil, false
		}
	}
	name, _ := claims[v.opts.NameClaim].(string)
	if name == "" || len(name) > maxClaimBytes {
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
	tooLong := func(g string) bool { return len(g) > maxClaimBytes }
	if len(in) > maxGroups || slices.ContainsFunc(in, tooLong) {
		return nil, false
	}
	p, err := principal.New(KindJWT, name, in)
	return &Principal{Principal: p, Claims: claims, Expires: expires}, err == nil
}

// why says what is wrong with a token that was refused.
func (v *jwtVerifier) why(token string, said *verdict, err error) *failure {
	var header struct {
		Alg string `json:"alg"`
	}
	var claims map[string]any
	parts := strings.Split(token, ".")
	if !decodePart(parts[0], &header) || !decodePart(parts[1], &claims) {
		return failUnknown
	}
	var expired *oidc.TokenExpiredError
	switch {
	case !slices.Contains(algorithms, jose.SignatureAlgorithm(header.Alg)):
		return failAlgorithm
	case said.noKeys:
		return failKeys
	case said.unasked:
		return failUnasked
	case !said.signed:
		return failSignature
	case errors.As(err, &expired) && expired.Expiry.Unix() <= 0:
		return failClaims // it names no end
	case errors.As(err, &expired):
		return failExpired
	case claims["iss"] != v.opts.Issuer:
		return failIssuer
	case claims["aud"] != v.opts.Audience && !isAmong(v.opts.Audience, claims["aud"]):
		return failAudience
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
