package client

import (
	"fmt"
	"net/http"

	"connectrpc.com/connect"
)

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
	if err := d.c.opts.authorize(r); err != nil {
		return nil, err
	}
	return d.c.http.Do(r)
}
