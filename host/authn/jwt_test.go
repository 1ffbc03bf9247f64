package authn

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// provider is an OpenID Connect provider in the test process.
type provider struct {
	*httptest.Server
	asked atomic.Int64 // number of requests for its keys

	mu   sync.Mutex
	keys []jose.JSONWebKey
	down bool
	hold chan struct{} // answers wait until it is closed; nil: they don't wait
}

func newProvider(t testing.TB) *provider {
	p := &provider{}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		p.asked.Add(1)
		p.mu.Lock()
		hold := p.hold
		p.mu.Unlock()
		if hold != nil {
			<-hold
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.down {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: p.keys})
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) set(down bool, keys ...signer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down, p.keys = down, nil
	for _, k := range keys {
		p.keys = append(p.keys, jose.JSONWebKey{Key: k.key.Public(), KeyID: k.id, Use: "sig"})
	}
}

// signer is a signing key of a provider.
type signer struct {
	id  string
	alg jose.SignatureAlgorithm
	key crypto.Signer
}

func newSigner(t testing.TB, id string, alg jose.SignatureAlgorithm) signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch alg {
	case jose.RS256, jose.PS256:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case jose.ES256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.EdDSA:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signer{id, alg, key}
}

// sign returns a signed token with the given claims.
func sign(t testing.TB, alg jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	t.Helper()
	return signAs(t, "", alg, key, id, claims)
}

// signAs is sign with a type in the header of the token.
func signAs(t testing.TB, kind string, alg jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	t.Helper()
	var o *jose.SignerOptions
	if kind != "" {
		o = (&jose.SignerOptions{}).WithType(jose.ContentType(kind))
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := s.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// issuerWorld is an authenticator that accepts the tokens of a provider.
type issuerWorld struct {
	*world
	t        *testing.T
	provider *provider
}

const audience = "hostd"

func newIssuerWorld(t *testing.T, keysFile string) *issuerWorld {
	t.Helper()
	w := &issuerWorld{&world{clock: newClock()}, t, newProvider(t)}
	var err error
	w.Authenticator, err = New(Options{Anonymous: true, Now: w.clock.now, JWT: &JWTOptions{
		Issuer: w.provider.URL, Audience: audience, Parties: []string{"app"}, NameClaim: "sub", GroupsClaim: "groups", KeysFile: keysFile,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// claims returns the claims of a valid token of one hour with some changes; nil
// removes a claim.
func (w *issuerWorld) claims(change map[string]any) map[string]any {
	c := map[string]any{
		"iss": w.provider.URL, "aud": []string{"other", audience}, "sub": "ann", "groups": []string{"ops", "dev"},
		"exp": w.clock.now().Add(time.Hour).Unix(), "iat": w.clock.now().Unix(),
	}
	for k, v := range change {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func (w *issuerWorld) token(by signer, change map[string]any) string {
	w.t.Helper()
	return sign(w.t, by.alg, by.key, by.id, w.claims(change))
}

// demand checks the result of verifying a token.
func (w *issuerWorld) demand(what, token string, want *failure) *Principal {
	w.t.Helper()
	p, fail := w.verify(context.Background(), token, true)
	if fail != want {
		w.t.Errorf("%s: %+v, want %+v", what, fail, want)
	}
	if (p == nil) != (fail != nil) {
		w.t.Errorf("%s: %+v with %+v", what, p, fail)
	}
	return p
}

func TestSignedTokens(t *testing.T) {
	w := newIssuerWorld(t, "")
	rs, es, ed := newSigner(t, "rs", jose.RS256), newSigner(t, "es", jose.ES256), newSigner(t, "ed", jose.EdDSA)
	stranger := newSigner(t, "rs", jose.RS256)
	w.provider.set(false, rs, es, ed)
	for _, by := range []signer{rs, es, ed} {
		p := w.demand(by.id, w.token(by, nil), nil)
		if p == nil || p.Kind != KindJWT || p.Name != "ann" || strings.Join(p.Groups, " ") != "ops dev" || p.Claims["iss"] != w.provider.URL || p.Expires.Unix() != w.clock.now().Add(time.Hour).Unix() {
			t.Errorf("%s is of %+v", by.id, p)
		}
	}
	public, err := x509.MarshalPKIXPublicKey(rs.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	part := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	good := w.token(rs, nil)
	parts := strings.Split(good, ".")
	now := w.clock.now()
	for _, c := range []struct {
		what, token string
		want        *failure
	}{
		{"one group", w.token(rs, map[string]any{"groups": "ops"}), nil},
		{"no group", w.token(rs, map[string]any{"groups": nil}), nil},
		{"one audience", w.token(rs, map[string]any{"aud": audience}), nil},
		{"expired within the leeway", w.token(rs, map[string]any{"exp": now.Add(-jwtLeeway + time.Second).Unix()}), nil},
		{"not yet, within the leeway", w.token(rs, map[string]any{"nbf": now.Add(jwtLeeway).Unix()}), nil},
		{"expired", w.token(rs, map[string]any{"exp": now.Add(-jwtLeeway - time.Second).Unix()}), failExpired},
		{"without an end", w.token(rs, map[string]any{"exp": nil}), failClaims},
		{"not yet", w.token(rs, map[string]any{"nbf": now.Add(jwtLeeway + time.Second).Unix()}), failClaims},
		{"no number", w.token(rs, map[string]any{"nbf": "soon"}), failClaims},
		{"different audience", w.token(rs, map[string]any{"aud": "billing"}), failAudience},
		{"no audience", w.token(rs, map[string]any{"aud": nil}), failAudience},
		{"different issuer", w.token(rs, map[string]any{"iss": "https://example.org"}), failIssuer},
		{"no name", w.token(rs, map[string]any{"sub": nil}), failClaims},
		{"an empty name", w.token(rs, map[string]any{"sub": ""}), failClaims},
		{"a long name", w.token(rs, map[string]any{"sub": strings.Repeat("a", maxClaimBytes+1)}), failClaims},
		{"a name with a control character", w.token(rs, map[string]any{"sub": "ann\n"}), failClaims},
		{"a name that is turned around", w.token(rs, map[string]any{"sub": "\u202eann"}), failClaims},
		{"a name with bytes that are no text", w.token(rs, map[string]any{"sub": "ann\xff"}), failClaims},
		{"a name in another script", w.token(rs, map[string]any{"sub": "Ånn 安"}), nil},
		{"a group with a control character", w.token(rs, map[string]any{"groups": []string{"dev", "ops\x00"}}), failClaims},
		{"never valid", w.token(rs, map[string]any{"nbf": 1e300}), failClaims},
		{"for ever", w.token(rs, map[string]any{"exp": 1e300}), failClaims},
		{"an end that a time cannot hold", w.token(rs, map[string]any{"exp": 1e18}), failClaims},
		{"an end before 1970", w.token(rs, map[string]any{"exp": -1e300}), failClaims},
		{"made at no time", w.token(rs, map[string]any{"iat": 1e300}), failClaims},
		{"made before 1970", w.token(rs, map[string]any{"iat": -1e300}), failClaims},
		{"valid from 1970 on", w.token(rs, map[string]any{"nbf": 0}), nil},
		{"an end in capitals", w.token(rs, map[string]any{"exp": nil, "EXP": now.Add(time.Hour).Unix()}), failClaims},
		{"an end in capitals beside the real one", w.token(rs, map[string]any{"exp": now.Add(-time.Hour).Unix(), "expp": 1, "eXp": now.Add(time.Hour).Unix()}), failExpired},
		{"an issuer in capitals", w.token(rs, map[string]any{"iss": "https://example.org", "isS": w.provider.URL}), failIssuer},
		{"an audience in capitals", w.token(rs, map[string]any{"aud": "billing", "auD": audience}), failAudience},
		{"claims in capitals that nobody knows", w.token(rs, map[string]any{"ISS": "https://example.org", "AUD": "billing", "EXP": 1, "AZP": "billing"}), nil},
		{"issued to this audience", w.token(rs, map[string]any{"azp": audience}), nil},
		{"issued to a client that is known", w.token(rs, map[string]any{"azp": "app"}), nil},
		{"issued to another client", w.token(rs, map[string]any{"azp": "billing"}), failAudience},
		{"issued to no client by name", w.token(rs, map[string]any{"azp": 7}), failAudience},
		{"a logout", w.token(rs, map[string]any{"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}}), failClaims},
		{"groups that are none", w.token(rs, map[string]any{"groups": []any{"a", 1}}), failClaims},
		{"groups that take much", w.token(rs, map[string]any{"groups": slices.Repeat([]string{strings.Repeat("g", 200)}, 20)}), nil},
		{"groups that take too much", w.token(rs, map[string]any{"groups": slices.Repeat([]string{strings.Repeat("g", 200)}, 21)}), failClaims},
		{"groups that are a number", w.token(rs, map[string]any{"groups": 7}), failClaims},
		{"another's key of the same id", w.token(stranger, nil), failSignature},
		{"alg none", part(map[string]any{"alg": "none"}) + "." + parts[1] + ".", failAlgorithm},
		{"alg none with the signature", part(map[string]any{"alg": "none", "kid": "rs"}) + "." + parts[1] + "." + parts[2], failAlgorithm},
		{"HS256 with the public key", sign(t, jose.HS256, public, "rs", w.claims(nil)), failAlgorithm},
		{"an algorithm that is not taken", sign(t, jose.PS256, rs.key, "rs", w.claims(nil)), failAlgorithm},
		{"the algorithm of another key", sign(t, jose.ES256, es.key, "rs", w.claims(nil)), failSignature},
		{"claims of another token", parts[0] + "." + part(w.claims(map[string]any{"sub": "root"})) + "." + parts[2], failSignature},
		{"no signature", parts[0] + "." + parts[1] + ".", failSignature},
		{"no token", "a.b.c", failUnknown},
		{"empty parts", "..", failUnknown},
	} {
		w.demand(c.what, c.token, c.want)
	}
}

// TestTokenOfOtherKindIsRejected: a signed token that is not a credential is
// rejected. An issuer signs such tokens with the same key, possibly for the
// same audience.
func TestTokenOfOtherKindIsRejected(t *testing.T) {
	w := newIssuerWorld(t, "")
	rs := newSigner(t, "rs", jose.RS256)
	w.provider.set(false, rs)
	for kind, want := range map[string]*failure{
		"JWT": nil, "jwt": nil, "at+jwt": nil, "application/at+jwt": nil, "AT+JWT": nil, "JOSE": nil,
		"logout+jwt": failClaims, "application/secevent+jwt": failClaims, "Token-Introspection+JWT": failClaims, "dpop+jwt": failClaims,
	} {
		w.demand(kind, signAs(t, kind, rs.alg, rs.key, rs.id, w.claims(nil)), want)
	}
}

// TestUnverifiedEmailIsRejected: if callers are named by their e-mail
// address, a token is rejected if its provider says that the address is not
// verified.
func TestUnverifiedEmailIsRejected(t *testing.T) {
	w := newIssuerWorld(t, "")
	w.jwt.opts.NameClaim = "email"
	rs := newSigner(t, "rs", jose.RS256)
	w.provider.set(false, rs)
	for _, tt := range []struct {
		verified any
		want     *failure
	}{{nil, nil}, {true, nil}, {false, failClaims}, {"false", failClaims}, {"true", nil}} {
		w.demand(fmt.Sprintf("email_verified %v", tt.verified), w.token(rs, map[string]any{"email": "ann@example.org", "email_verified": tt.verified}), tt.want)
	}
}

// TestVerifiedTokensAreBounded: the cache of verified tokens is bounded.
func TestVerifiedTokensAreBounded(t *testing.T) {
	w := newIssuerWorld(t, "")
	key := newSigner(t, "k", jose.EdDSA)
	w.provider.set(false, key)
	for i := range maxVerified + 10 {
		w.demand("a token", w.token(key, map[string]any{"jti": i}), nil)
	}
	if n := len(w.jwt.verified); n != maxVerified {
		t.Errorf("%d tokens are known", n)
	}
	// A cached token expires too.
	last := w.token(key, map[string]any{"jti": "last"})
	w.demand("the last", last, nil)
	w.clock.advance(time.Hour + jwtLeeway)
	w.demand("the last, expired", last, failExpired)
}

func BenchmarkSignedToken(b *testing.B) {
	for _, alg := range []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA} {
		for _, known := range []bool{true, false} {
			name := string(alg) + "/first"
			if known {
				name = string(alg) + "/known"
			}
			b.Run(name, func(b *testing.B) {
				key := newSigner(b, "k", alg)
				c := newClock()
				v := newJWTVerifier(JWTOptions{Issuer: "https://example.org", Audience: audience, NameClaim: "sub", GroupsClaim: "groups", KeysFile: "given"}, c.now, slog.New(slog.DiscardHandler))
				v.keys.set([]jose.JSONWebKey{{Key: key.key.Public(), KeyID: "k"}})
				claims := map[string]any{"iss": "https://example.org", "aud": audience, "sub": "ann", "exp": c.now().Add(time.Hour).Unix()}
				token := sign(b, alg, key.key, "k", maps.Clone(claims))
				b.ReportAllocs()
				for b.Loop() {
					if !known {
						clear(v.verified)
					}
					if _, fail := v.verify(context.Background(), token, false); fail != nil {
						b.Fatal(fail.err)
					}
				}
			})
		}
	}
}
