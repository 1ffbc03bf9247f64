package admission

import (
	"errors"
	"net/http"

	"connectrpc.com/connect"
)

// errPlain is answered to who speaks to the node without TLS.
var errPlain = errors.New("this node takes calls over TLS only: give its address as https://")

// Encrypted refuses calls that come without TLS. Calls between nodes come
// without it, and check who calls themselves; probes of health say nothing that
// is secret, and come from where no certificate is.
func Encrypted(next http.Handler, internal map[string]http.Handler) http.Handler {
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
