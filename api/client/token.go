package client

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"

	"connectrpc.com/connect"
)

// InsecureTokenError means that an address is on another machine and has no
// TLS. A token is not sent to such an address unless Options.InsecureToken is
// set.
type InsecureTokenError struct {
	Address string // the address as the caller gave it
}

// Error implements error.
func (e *InsecureTokenError) Error() string {
	return fmt.Sprintf("refusing to send the token to %s without TLS, because everybody on the network path could read it: use an https address, or set Options.InsecureToken", e.Address)
}

// tokenMayGo reports whether the token may be sent to a URL: it may over TLS,
// to this machine, or if InsecureToken is set.
func (o *Options) tokenMayGo(to string) bool {
	if o.Token == "" && o.TokenSource == nil || o.InsecureToken {
		return true
	}
	u, err := url.Parse(to)
	return err == nil && (u.Scheme == "https" || onThisMachine(u.Hostname()))
}

// onThisMachine reports whether a host is localhost or a loopback address.
func onThisMachine(host string) bool {
	at, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && at.Unmap().IsLoopback()
}

// authorize adds the bearer token to a request, if there is one.
func (o *Options) authorize(r *http.Request) error {
	token := o.Token
	if o.TokenSource != nil {
		var err error
		if token, err = o.TokenSource(r.Context()); err != nil {
			return connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("the token source returned no token: %w", err))
		}
	}
	if token != "" {
		r.Header["Authorization"] = []string{"Bearer " + token}
	}
	return nil
}

// HTTPClient returns an HTTP client that calls nodes with c's transport and
// token, for services for which c has no methods. It is safe for concurrent
// use. It must not be used after c is closed.
func (c *Client) HTTPClient() connect.HTTPClient { return authorizingDoer{c} }

type authorizingDoer struct{ c *Client }

func (d authorizingDoer) Do(r *http.Request) (*http.Response, error) {
	if !d.c.opts.tokenMayGo(r.URL.String()) { // the caller chose the address
		return nil, connect.NewError(connect.CodeInvalidArgument, &InsecureTokenError{Address: r.URL.Host})
	}
	if err := d.c.opts.authorize(r); err != nil {
		return nil, err
	}
	return d.c.http.Do(r)
}
