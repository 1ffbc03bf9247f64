package testkit

import (
	"net/http"

	"github.com/hostd/hostd/host/procedure"
)

// formerClient returns an HTTP client that calls the nodes of the previous release:
// it requests the former paths of procedures, as their clients do. Nodes of this
// release serve these paths too.
func formerClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: former{&http.Transport{Protocols: protocols}}}
}

type former struct{ next *http.Transport }

// RoundTrip implements http.RoundTripper.
func (f former) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Path = procedure.FormerPath(r.URL.Path)
	return f.next.RoundTrip(r)
}

// CloseIdleConnections closes the connections that no call uses.
func (f former) CloseIdleConnections() { f.next.CloseIdleConnections() }
