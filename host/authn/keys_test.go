package authn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

func TestKeysRotate(t *testing.T) {
	w := newIssuerWorld(t, "")
	old, next := newSigner(t, "old", jose.ES256), newSigner(t, "next", jose.ES256)
	w.provider.set(false, old)
	first := w.token(old, nil)
	w.demand("the old key", first, nil)
	if n := w.provider.asked.Load(); n != 1 {
		t.Fatalf("the provider was asked %d times", n)
	}
	w.provider.set(false, next)
	second := w.token(next, nil)
	w.demand("a new key, a moment after the provider was asked", second, failSignature)
	w.clock.advance(askAgainAfter)
	w.demand("a new key", second, nil)
	w.demand("a key that is gone, of a token that was verified, a moment after", first, failSignature)
	if _, fail := w.verify(context.Background(), first, false); fail != failSignature {
		t.Errorf("a stream whose key is gone: %+v", fail)
	}
	w.clock.advance(askAgainAfter)
	w.demand("a key that is gone", first, failSignature)
	asked := w.provider.asked.Load()
	for range 20 {
		w.demand("a key that nobody has", w.token(newSigner(t, "nobody", jose.ES256), nil), failSignature)
		w.demand("the new key", second, nil)
	}
	if n := w.provider.asked.Load(); n != asked {
		t.Errorf("unknown keys have the provider asked %d times in a moment", n-asked)
	}
}

// TestForgedTokensAreRejectedAlike: each token with an unknown key is rejected
// as invalid, no matter how many were sent before and by whom.
func TestForgedTokensAreRejectedAlike(t *testing.T) {
	w := newIssuerWorld(t, "")
	key := newSigner(t, "k", jose.ES256)
	w.provider.set(false, key)
	for i := range 3 {
		forged := w.token(newSigner(t, "nobody", jose.ES256), nil)
		if status, _, answer := w.ask(somePath, "192.0.2.1:1", "Bearer "+forged); status != http.StatusUnauthorized || answer.Header().Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("forged token %d: %d %s", i, status, answer.Body)
		}
		w.clock.advance(askAgainAfter / 3)
	}
	w.demand("a good one", w.token(key, nil), nil)
	if n := w.provider.asked.Load(); n != 1 {
		t.Errorf("the provider was asked %d times", n)
	}
	w.provider.set(true)
	w.clock.advance(askAgainAfter)
	for range 2 {
		if status, _, answer := w.ask(somePath, "192.0.2.1:1", "Bearer "+w.token(newSigner(t, "other", jose.ES256), nil)); status != http.StatusServiceUnavailable {
			t.Errorf("while the provider does not answer: %d %s", status, answer.Body)
		}
	}
}

// TestTokenWaitsForKeyFetch: a caller whose key is being fetched is not
// rejected, and doesn't wait longer than its context allows.
func TestTokenWaitsForKeyFetch(t *testing.T) {
	w := newIssuerWorld(t, "")
	old, next := newSigner(t, "old", jose.ES256), newSigner(t, "next", jose.ES256)
	w.provider.set(false, old)
	w.demand("the old key", w.token(old, nil), nil)
	w.clock.advance(askAgainAfter)
	w.provider.set(false, next)
	token, hold := w.token(next, nil), make(chan struct{})
	w.provider.mu.Lock()
	w.provider.hold = hold
	w.provider.mu.Unlock()
	fails := make(chan *failure, 2)
	ask := func() {
		_, fail := w.verify(context.Background(), token, true)
		fails <- fail
	}
	go ask()
	for w.provider.asked.Load() != 2 {
		time.Sleep(time.Millisecond)
	}
	given, cancel := context.WithCancel(context.Background())
	cancel()
	if _, fail := w.verify(given, token, true); fail != failUnasked {
		t.Errorf("who does not wait for keys that are asked for: %+v", fail)
	}
	go ask()
	close(hold)
	for range 2 {
		if fail := <-fails; fail != nil {
			t.Errorf("who waits for keys that are asked for: %+v", fail)
		}
	}
	if n := w.provider.asked.Load(); n != 2 {
		t.Errorf("the provider was asked %d times", n)
	}
	// The provider is contacted, but does not answer.
	w.clock.advance(askAgainAfter)
	w.provider.set(true)
	last := w.token(newSigner(t, "last", jose.ES256), nil)
	w.demand("a key that could not be asked for", last, failUnasked)
	w.demand("a key that could not be asked for a moment ago", last, failUnasked)
	w.clock.advance(askAgainAfter)
	w.provider.set(false, next)
	w.demand("a key that could be asked for again", last, failSignature)
	w.demand("a key that was asked for a moment ago", last, failSignature)
}

// TestUnparsableKeyIsSkipped: a key that cannot be parsed does not affect
// the other keys.
func TestUnparsableKeyIsSkipped(t *testing.T) {
	w := newIssuerWorld(t, "")
	var log bytes.Buffer
	w.jwt.keys.logger = slog.New(slog.NewTextHandler(&log, nil))
	key := newSigner(t, "k", jose.ES256)
	good, err := json.Marshal(jose.JSONWebKey{Key: key.key.Public(), KeyID: "k"})
	if err != nil {
		t.Fatal(err)
	}
	for _, odd := range []string{
		`{"kty":"EC","crv":"secp256k1","kid":"odd","x":"AA","y":"AA"}`,
		`{"kty":"RSA","kid":"odd"}`,
		`{"kty":"RSA","kid":"odd","n":"AQAB","e":"AQAB","x5c":["nonsense"]}`,
		`7`,
		`{"kty":"oct","k":"c2VjcmV0"}`,
	} {
		text := `{"keys":[` + odd + "," + string(good) + `]}`
		if err := w.jwt.setKeys([]byte(text)); err != nil {
			t.Errorf("%s: %v", odd, err)
			continue
		}
		if _, fail := w.verify(context.Background(), w.token(key, nil), false); fail != nil {
			t.Errorf("beside %s: %+v", odd, fail)
		}
	}
	for range 3 {
		if err := w.jwt.setKeys([]byte(`{"keys":[7,` + string(good) + `]}`)); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "skipped unsupported keys"); n != 5 {
		t.Errorf("keys that are passed over are told of %d times:\n%s", n, log.String())
	}
}

// TestKeysAreFetchedOnlyOverTLS: keys are fetched only over TLS, because an
// attacker who can answer in the provider's place could forge any caller.
func TestKeysAreFetchedOnlyOverTLS(t *testing.T) {
	key := newSigner(t, "k", jose.ES256)
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.key.Public(), KeyID: "k"}}})
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	long := bytes.Repeat([]byte(" "), maxKeysBytes)
	for _, c := range []struct {
		what, issuer string
		answers      map[string]string // responses by URL; > starts the target of a redirect
		says         string            // expected error; empty: the keys are accepted
	}{
		{"https", "https://a.example", map[string]string{"https://a.example/keys": string(text)}, ""},
		{"another host", "https://a.example", map[string]string{"": "https://b.example/keys", "https://b.example/keys": string(text)}, ""},
		{"a redirect", "https://a.example", map[string]string{"https://a.example/keys": ">https://b.example/k", "https://b.example/k": string(text)}, ""},
		{"loopback", "http://127.0.0.1:1", map[string]string{"http://127.0.0.1:1/keys": string(text)}, ""},
		{"http", "https://a.example", map[string]string{"": "http://a.example/keys", "http://a.example/keys": string(text)}, "must use https"},
		{"http on this machine", "https://a.example", map[string]string{"": "http://127.0.0.1/keys", "http://127.0.0.1/keys": string(text)}, "must use https"},
		{"http elsewhere", "http://127.0.0.1:1", map[string]string{"": "http://192.0.2.1/keys", "http://192.0.2.1/keys": string(text)}, "must use https"},
		{"a redirect to http", "https://a.example", map[string]string{"https://a.example/keys": ">http://a.example/k", "http://a.example/k": string(text)}, "must use https"},
		{"a long document", "https://a.example", map[string]string{"https://a.example/.well-known/openid-configuration": string(long) + `{"issuer":"https://a.example","jwks_uri":"https://a.example/keys"}`, "https://a.example/keys": string(text)}, "too large"},
		{"long keys", "https://a.example", map[string]string{"https://a.example/keys": string(long) + string(text)}, "too large"},
	} {
		asked = nil
		client := &http.Client{Transport: answering(func(r *http.Request) *http.Response {
			at := r.URL.String()
			asked = append(asked, at)
			said, ok := c.answers[at]
			if !ok && strings.HasSuffix(at, "/.well-known/openid-configuration") {
				said, ok = `{"issuer":"`+c.issuer+`","jwks_uri":"`+cmp.Or(c.answers[""], c.issuer+"/keys")+`"}`, true
			}
			to, redirect := strings.CutPrefix(said, ">")
			out := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(said)), Request: r}
			if redirect {
				out.StatusCode = http.StatusFound
				out.Header.Set("Location", to)
			} else if !ok {
				out.StatusCode = http.StatusNotFound
			}
			return out
		})}
		v := newJWTVerifier(JWTOptions{Issuer: c.issuer, Audience: audience, NameClaim: "sub", GroupsClaim: "groups", Client: client}, time.Now, slog.New(slog.DiscardHandler))
		err := v.keys.fetch(context.Background())
		if _, usable := v.keys.current(); usable != (c.says == "") || c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v; keys: %v", c.what, err, usable)
		}
		for _, at := range asked {
			if c.says == "must use https" && strings.HasPrefix(at, "http:") && !strings.HasPrefix(at, c.issuer+"/") {
				t.Errorf("%s: %s is asked", c.what, at)
			}
		}
	}
}

// answering is a transport that responds without a network.
type answering func(*http.Request) *http.Response

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r), nil }

func TestProviderIsUnavailable(t *testing.T) {
	w := newIssuerWorld(t, "")
	key := newSigner(t, "k", jose.EdDSA)
	w.provider.set(true)
	w.demand("before there was a key", w.token(key, nil), failKeys)
	w.provider.set(false, key)
	w.clock.advance(askAgainAfter)
	w.demand("with the provider", w.token(key, nil), nil)
	w.provider.set(true)
	w.clock.advance(keysUsableFor - time.Second)
	if err := w.jwt.keys.fetch(context.Background()); err == nil {
		t.Error("a provider that is down gives keys")
	}
	w.demand("nearly a day later", w.token(key, nil), nil)
	w.clock.advance(time.Second)
	w.demand("a day later", w.token(key, nil), failKeys)
	w.provider.set(false, key)
	w.clock.advance(askAgainAfter)
	w.demand("with the provider again", w.token(key, nil), nil)
}

// TestRunFetchesKeysWithoutCallers: Run fetches keys even if there are no callers.
func TestRunFetchesKeysWithoutCallers(t *testing.T) {
	w := newIssuerWorld(t, "")
	key := newSigner(t, "k", jose.EdDSA)
	w.provider.set(false, key)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	for w.jwt.keys.stale() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
	if _, fail := w.verify(context.Background(), w.token(key, nil), false); fail != nil {
		t.Error(fail.err)
	}
}

func TestKeysOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	set := func(keys ...signer) {
		var out jose.JSONWebKeySet
		for _, k := range keys {
			out.Keys = append(out.Keys, jose.JSONWebKey{Key: k.key.Public(), KeyID: k.id})
		}
		text, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		write(t, file, string(text))
	}
	one, two := newSigner(t, "one", jose.RS256), newSigner(t, "two", jose.EdDSA)
	set(one)
	w := newIssuerWorld(t, file)
	w.demand("the key of the file", w.token(one, nil), nil)
	w.demand("another key", w.token(two, nil), failSignature)
	w.clock.advance(2 * keysUsableFor)
	w.demand("days later", w.token(one, nil), nil)
	write(t, file, "{}")
	w.settle()
	w.demand("with a bad file", w.token(one, nil), nil)
	set(two)
	w.settle()
	w.demand("a key that is gone", w.token(one, nil), failSignature)
	w.demand("the new key", w.token(two, nil), nil)
	if n := w.provider.asked.Load(); n != 0 {
		t.Errorf("the provider was asked %d times", n)
	}
	for _, bad := range []string{"", "[]", `{"keys":[]}`, `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`, `{"keys":[{"kty":"RSA"}]}`} {
		if keys, _, err := parseKeys([]byte(bad)); err == nil {
			t.Errorf("%s: %v", bad, keys)
		}
	}
	// A private key does not belong into a public set.
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: one.key, KeyID: "one"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := parseKeys(private); err == nil {
		t.Error("a private key is taken for one of the issuer's")
	}
}
