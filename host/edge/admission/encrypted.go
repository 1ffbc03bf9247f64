package admission

import (
	"errors"
	"net/http"

	"connectrpc.com/connect"
)

// errPlain is the error for calls without TLS.
var errPlain = errors.New("this node accepts calls only over TLS: use https:// in its address")

// RequireTLS rejects calls without TLS. Two kinds of calls are exempt: calls
// between nodes, which come without TLS and authenticate their caller
// themselves, and health probes, which reveal nothing secret and come from
// systems that have no certificates.
func RequireTLS(next http.Handler, internal map[string]http.Handler) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.TLS != nil || isProbe(r) || internalHandler(r, internal) != nil:
			next.ServeHTTP(w, r)
		case r.Method == http.MethodPost && refuse.IsSupported(r):
			w.Header().Set("Connection", "close")
			refuse.Write(w, r, connect.NewError(connect.CodePermissionDenied, errPlain))
		default:
			w.Header().Set("Connection", "close")
			http.Error(w, errPlain.Error(), http.StatusForbidden)
		}
	})
}
