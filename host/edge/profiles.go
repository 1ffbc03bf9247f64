package edge

import (
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/hostd/hostd/host/authn"
)

// profilesPath is where profiles are served over HTTP.
const profilesPath = "GET /debug/pprof/"

// localProfiles serves the profiles that Go's tools ask for, only to callers on this
// machine.
func localProfiles() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !authn.FromThisMachine(r) {
			http.Error(w, "profiles are served only to callers on the node's machine; use 'hostd node profile' from elsewhere", http.StatusForbidden)
			return
		}
		switch strings.TrimPrefix(r.URL.Path, "/debug/pprof/") {
		case "profile":
			pprof.Profile(w, r)
		case "trace":
			pprof.Trace(w, r)
		case "cmdline":
			http.NotFound(w, r) // could reveal file names
		case "symbol":
			pprof.Symbol(w, r)
		default:
			pprof.Index(w, r)
		}
	})
}
