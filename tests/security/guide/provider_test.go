package guide

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// provider is an OpenID Connect provider within the test.
type provider struct {
	*httptest.Server
	t   testing.TB
	key ed25519.PrivateKey
}

func newProvider(t testing.TB) *provider {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, key: key}
	mux := http.NewServeMux()
	answer := func(path string, with func() any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(with()) })
	}
	answer("/.well-known/openid-configuration", func() any { return map[string]string{"issuer": p.URL, "jwks_uri": p.URL + "/keys"} })
	answer("/keys", func() any {
		return map[string]any{"keys": []any{map[string]string{
			"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": "1", "x": base64.RawURLEncoding.EncodeToString(public),
		}}}
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// token returns a signed token that is valid for an hour.
func (p *provider) token(name string, groups ...string) string {
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			p.t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	signed := part(map[string]string{"alg": "EdDSA", "kid": "1"}) + "." + part(map[string]any{
		"iss": p.URL, "aud": "hostd", "sub": name, "groups": groups, "exp": time.Now().Add(time.Hour).Unix(),
	})
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(p.key, []byte(signed)))
}
