package authn

import (
	"fmt"
	"net/http"
	"net/netip"
)

// guarded is a transport to a provider, wherever its documents and redirects
// lead. Who can answer in the provider's place says who callers are: so it asks
// over TLS alone, but for a provider on this machine that is named without.
type guarded struct {
	base  http.RoundTripper // nil is http.DefaultTransport
	plain bool              // the issuer is named without TLS
}

// RoundTrip implements http.RoundTripper. Bodies end with an error beyond
// maxKeysBytes.
func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !(g.plain && r.URL.Scheme == "http" && onThisMachine(r.URL.Hostname())) {
		return nil, fmt.Errorf("the provider of keys is not asked without TLS: it names %.256q", r.URL.Redacted())
	}
	base := g.base
	if base == nil {
		base = http.DefaultTransport
	}
	res, err := base.RoundTrip(r)
	if err == nil {
		res.Body = http.MaxBytesReader(nil, res.Body, maxKeysBytes)
	}
	return res, err
}

// onThisMachine reports whether a host is a loopback address, or localhost.
func onThisMachine(host string) bool {
	at, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && at.Unmap().IsLoopback()
}
