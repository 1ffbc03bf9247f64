package admission

import (
	"net/http"
	"slices"
	"time"

	connectcors "connectrpc.com/cors"
	"github.com/rs/cors"
)

// AnyOrigin as an allowed origin stands for all origins.
const AnyOrigin = "*"

// Headers of requests and responses in addition to those of Connect, for pages
// of other origins.
var (
	askedHeaders = []string{"Authorization", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "Hostd-Cluster", "Hostd-First-Attempt-Age"}
	toldHeaders  = []string{"ETag", "Retry-After", "Hostd-Cluster", "Hostd-Duplicate", "Hostd-Event-Count", "Hostd-Fuel", "Hostd-Node-Id"}
)

// CrossOrigin makes browsers allow pages of the given origins to call the node,
// and answers their preflight requests, which carry no credentials. Without
// origins it returns next. Origins then admits the requests of such pages.
// https://fetch.spec.whatwg.org/#http-cors-protocol
func CrossOrigin(next http.Handler, origins []string) http.Handler {
	if len(origins) == 0 {
		return next
	}
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: append(connectcors.AllowedMethods(), http.MethodHead),
		AllowedHeaders: append(connectcors.AllowedHeaders(), askedHeaders...),
		ExposedHeaders: append(connectcors.ExposedHeaders(), toldHeaders...),
		MaxAge:         int((2 * time.Hour).Seconds()),
	}).Handler(next)
}

// allowedOrigin reports whether the request comes from a page of one of the
// origins, according to its Origin header.
func allowedOrigin(r *http.Request, origins []string) bool {
	origin := r.Header.Get("Origin")
	return origin != "" && (slices.Contains(origins, origin) || slices.Contains(origins, AnyOrigin))
}
