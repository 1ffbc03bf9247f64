package leaderproxy

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/hostd/hostd/host/procedure"
)

// CurrentPaths serves requests with the former paths of procedures like
// requests with the current paths, for clients and nodes of the previous
// release. It must be in front of everything that looks at the path of a
// request.
func CurrentPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, withPath(r, procedure.CurrentPath(r.URL.Path)))
	})
}

// formerPaths sends calls to other nodes with the former paths of their procedures,
// because a node of the previous release knows only these, and a node of this
// release knows both.
type formerPaths struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (f formerPaths) RoundTrip(r *http.Request) (*http.Response, error) {
	prefix := strings.TrimSuffix(Path, "/")
	if path, forwarded := strings.CutPrefix(r.URL.Path, prefix); forwarded {
		r = withPath(r, prefix+procedure.FormerPath(path))
	}
	return f.next.RoundTrip(r)
}

// withPath returns the request with a path. It does not change r.
func withPath(r *http.Request, path string) *http.Request {
	if path == r.URL.Path {
		return r
	}
	r = r.WithContext(r.Context()) // a shallow copy
	r.URL = &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: path, RawQuery: r.URL.RawQuery}
	return r
}
