package rpc

import (
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"
)

// gate answers unavailable to every RPC until the node can take some, and
// hands the node's own services, which check and bound what they take
// themselves, what is meant for them at any time.
func gate(public http.Handler, opts Options) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for prefix, internal := range opts.Internal {
			if strings.HasPrefix(r.URL.Path, prefix) {
				internal.ServeHTTP(w, r)
				return
			}
		}
		if opts.Opened != nil && strings.Count(r.URL.Path, "/") > 1 {
			if err := opts.Opened(); err != nil {
				refuse.Write(w, r, connect.NewError(connect.CodeUnavailable, fmt.Errorf("this node is not open yet: %w", err)))
				return
			}
		}
		public.ServeHTTP(w, r)
	})
}
