package authn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

const (
	// keysFreshFor is the age of keys at which they are fetched again.
	keysFreshFor = 10 * time.Minute
	// keysUsableFor is the maximum age of keys while the provider does not
	// answer.
	keysUsableFor = 24 * time.Hour
	// askAgainAfter is the minimum interval between two attempts to fetch keys.
	askAgainAfter = 30 * time.Second
	// fetchPatience bounds the duration of an attempt.
	fetchPatience = 5 * time.Second
	// maxWaiting bounds the number of callers that wait for an attempt.
	maxWaiting   = 1024
	maxKeysBytes = 1 << 20
	maxKeys      = 256
)

var (
	errNoKeys      = errors.New("no keys of the issuer are available")
	errNoSignature = errors.New("no key of the issuer made the token's signature")
	errTooManyWait = errors.New("too many requests wait for the keys of the issuer")
)

// keySet holds the keys of an issuer. It implements oidc.KeySet.
type keySet struct {
	opts   JWTOptions
	now    func() time.Time
	logger *slog.Logger

	asking  chan struct{} // one slot for the caller that fetches; other callers wait for its result
	waiting chan struct{} // a slot for each caller that fetches or waits

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	version uint64    // incremented when keys changes
	fetched time.Time // time of the last successful fetch; zero: never
	asked   time.Time // time of the last attempt to fetch; zero: never
	logged  string    // the warning logged last about skipped keys
}

func newKeySet(o JWTOptions, now func() time.Time, logger *slog.Logger) *keySet {
	return &keySet{opts: o, now: now, logger: logger, asking: make(chan struct{}, 1), waiting: make(chan struct{}, maxWaiting)}
}

// parseKeys parses a JWK set (RFC 7517). It leaves out keys that are not for
// signatures or have an unsupported type. odd joins the errors of keys that
// could not be parsed; the other keys remain usable.
func parseKeys(text []byte) (keys []jose.JSONWebKey, odd, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, nil, fmt.Errorf("the key set is not JSON: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, nil, fmt.Errorf("the key set has %d keys, at most %d are allowed", len(set.Keys), maxKeys)
	}
	for i, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := json.Unmarshal(raw, &key); errors.Is(err, jose.ErrUnsupportedKeyType) && !isSignatureType(raw) {
			continue
		} else if err != nil {
			odd = errors.Join(odd, fmt.Errorf("key %d: %w", i+1, err))
			continue
		}
		if key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig") {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, nil, errors.Join(errors.New("the key set has no supported public key for signatures"), odd)
	}
	return keys, odd, nil
}

// isSignatureType reports whether a JWK has one of the types whose keys sign
// tokens. Providers do not expect that such a key is skipped, because of its
// curve or its length.
func isSignatureType(raw []byte) bool {
	var key struct {
		Type string `json:"kty"`
	}
	return json.Unmarshal(raw, &key) == nil && (key.Type == "EC" || key.Type == "RSA")
}

// set replaces the keys. It increments the version only if the keys differ.
func (k *keySet) set(keys []jose.JSONWebKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fetched = k.now()
	if !sameKeys(keys, k.keys) {
		k.keys = keys
		k.version++
	}
}

func sameKeys(a, b []jose.JSONWebKey) bool {
	left, err := json.Marshal(a)
	right, err2 := json.Marshal(b)
	return err == nil && err2 == nil && string(left) == string(right)
}

// current returns the version of the keys, and whether they are usable.
func (k *keySet) current() (version uint64, usable bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.version, k.usable()
}

// usable reports whether there are keys that are not too old. mu must be held.
func (k *keySet) usable() bool {
	return len(k.keys) > 0 && (k.opts.KeysFile != "" || k.now().Sub(k.fetched) < keysUsableFor)
}

// VerifySignature implements oidc.KeySet. If the token's key is unknown, it
// fetches the keys, unless that was done a moment ago. The limit applies to all
// callers, so tokens with made-up keys are always rejected in the same way. If
// the keys cannot be fetched, it is unknown whether the issuer has signed the
// token.
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	said, _ := ctx.Value(resultKey{}).(*cachedResult)
	if said == nil {
		said = &cachedResult{}
	}
	signed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, err
	}
	payload, known := k.try(signed)
	if payload == nil && !known && said.fetch && k.opts.KeysFile == "" {
		_ = k.fetch(ctx) // Run logs that the provider does not answer
		payload, known = k.try(signed)
		said.unasked = !known && !k.justAnswered()
	}
	if payload != nil {
		said.signed = true
		return payload, nil
	}
	if _, usable := k.current(); !usable {
		said.noKeys = true
		return nil, errNoKeys
	}
	return nil, errNoSignature
}

// try returns the payload if a usable key has signed the token. known reports
// whether there is a key with the token's key id.
func (k *keySet) try(signed *jose.JSONWebSignature) (payload []byte, known bool) {
	k.mu.Lock()
	var keys []jose.JSONWebKey
	if k.usable() {
		keys = k.keys
	}
	k.mu.Unlock()
	header := signed.Signatures[0].Header
	for i := range keys {
		key := &keys[i]
		if header.KeyID != "" && key.KeyID != header.KeyID {
			continue
		}
		known = known || header.KeyID != ""
		if key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := signed.Verify(key); err == nil {
			return payload, true
		}
	}
	return nil, known
}

// justAnswered reports whether the last attempt to fetch keys succeeded and is
// so recent that there is no new attempt yet. A key that is still unknown then
// counts as invalid.
func (k *keySet) justAnswered() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.fetched.Before(k.asked) && k.now().Sub(k.asked) < askAgainAfter
}

// mayAsk reports whether the provider may be contacted now.
func (k *keySet) mayAsk() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.opts.KeysFile == "" && (k.asked.IsZero() || k.now().Sub(k.asked) >= askAgainAfter)
}

// fetch fetches the keys from the provider. Concurrent callers share one
// attempt; they wait for it until ctx ends.
func (k *keySet) fetch(ctx context.Context) error {
	select {
	case k.waiting <- struct{}{}:
		defer func() { <-k.waiting }()
	default:
		return errTooManyWait
	}
	select {
	case k.asking <- struct{}{}:
		defer func() { <-k.asking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !k.mayAsk() {
		return nil // another caller has fetched in the meantime
	}
	k.mu.Lock()
	k.asked = k.now()
	k.mu.Unlock()
	// The attempt continues if the caller gives up, because others wait for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchPatience)
	defer cancel()
	text, err := k.download(ctx)
	if err != nil {
		return err
	}
	return k.take(text)
}

// download returns the provider's JWK set.
func (k *keySet) download(ctx context.Context) ([]byte, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, k.opts.Client), k.opts.Issuer)
	if err != nil {
		return nil, err
	}
	var meta struct {
		URL string `json:"jwks_uri"`
	}
	if err := provider.Claims(&meta); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, meta.URL, nil)
	if err != nil {
		return nil, err
	}
	res, err := k.opts.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the provider's key URL returned %s", res.Status)
	}
	return io.ReadAll(res.Body) // the transport limits the size
}

// take replaces the keys by the keys in a JWK set. It logs skipped keys, but
// the same warning only once in a row.
func (k *keySet) take(text []byte) error {
	keys, odd, err := parseKeys(text)
	if err != nil {
		return err
	}
	k.set(keys)
	told := ""
	if odd != nil {
		told = odd.Error()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if told != "" && told != k.logged {
		k.logger.Warn("skipped unsupported keys of the issuer", "issuer", k.opts.Issuer, "error", odd)
	}
	k.logged = told
	return nil
}

// stale reports whether the keys should be refreshed.
func (k *keySet) stale() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fetched.IsZero() || k.now().Sub(k.fetched) >= keysFreshFor
}

// refreshKeys fetches the keys from the provider whenever they are stale, until
// ctx ends.
func (a *Authenticator) refreshKeys(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if k := a.jwt.keys; k.stale() && k.mayAsk() {
			if err := k.fetch(ctx); err != nil && ctx.Err() == nil {
				a.metrics.reloads.WithLabelValues("oidc-issuer").Inc()
				a.opts.Logger.Warn("cannot fetch the issuer's keys; the previous keys stay in effect for a day", "issuer", k.opts.Issuer, "error", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
