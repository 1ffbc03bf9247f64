package client

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"

	"connectrpc.com/connect"
)

// InsecureTokenError is of an address without TLS on another machine, where a
// token is not sent unless Options.InsecureToken says so.
type InsecureTokenError struct {
	Address string // as it was given
}

// Error implements error.
func (e *InsecureTokenError) Error() string {
	return fmt.Sprintf("the token is not sent without TLS to %s, where everybody on the way can read it: give an address with https, or Options.InsecureToken", e.Address)
}

// tokenMayGo reports whether a URL may be called with the options' token: over
// TLS, on this machine, or where InsecureToken says so.
func (o *Options) tokenMayGo(to string) bool {
	if o.Token == "" && o.TokenSource == nil || o.InsecureToken {
		return true
	}
	u, err := url.Parse(to)
	return err == nil && (u.Scheme == "https" || onThisMachine(u.Hostname()))
}

// onThisMachine reports whether a host is a loopback address, or localhost.
func onThisMachine(host string) bool {
	at, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && at.Unmap().IsLoopback()
}

// authorize puts the bearer token into a request, where there is one.
func (o *Options) authorize(r *http.Request) error {
	token := o.Token
	if o.TokenSource != nil {
		var err error
		if token, err = o.TokenSource(r.Context()); err != nil {
			return connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("the token source gives no token: %w", err))
		}
	}
	if token != "" {
		r.Header["Authorization"] = []string{"Bearer " + token}
	}
	return nil
}

// HTTPClient makes requests to nodes as the client does, with its transport and
// its token, for services that the client has no methods for. It is safe for
// concurrent use, and not to be used once the client is closed.
func (c *Client) HTTPClient() connect.HTTPClient { return authorizingDoer{c} }

type authorizingDoer struct{ c *Client }

func (d authorizingDoer) Do(r *http.Request) (*http.Response, error) {
	if !d.c.opts.tokenMayGo(r.URL.String()) { // its user chose the address
		return nil, connect.NewError(connect.CodeInvalidArgument, &InsecureTokenError{Address: r.URL.Host})
	}
	if err := d.c.opts.authorize(r); err != nil {
		return nil, err
	}
	return d.c.http.Do(r)
}
