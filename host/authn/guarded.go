package authn

import (
	"fmt"
	"net/http"
	"net/netip"
)

// guarded is a transport to the provider of an issuer's keys. An attacker who
// can answer in the provider's place can forge any caller. So guarded requires
// TLS for all URLs, also for those in the provider's documents and redirects.
// The only exception is a provider on this machine whose issuer URL has the
// scheme http.
type guarded struct {
	base  http.RoundTripper // nil means http.DefaultTransport
	plain bool              // the issuer URL has the scheme http
}

// RoundTrip implements http.RoundTripper. Reading more than maxKeysBytes of a
// body returns an error.
func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !(g.plain && r.URL.Scheme == "http" && onThisMachine(r.URL.Hostname())) {
		return nil, fmt.Errorf("the provider's key URL must use https, got %.256q", r.URL.Redacted())
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

// onThisMachine reports whether host is a loopback address or localhost.
func onThisMachine(host string) bool {
	at, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && at.Unmap().IsLoopback()
}
