package admission

import (
	"net/http"
	"slices"
	"time"

	connectcors "connectrpc.com/cors"
	"github.com/rs/cors"
)

// AnyOrigin among the origins that may call a node stands for all.
const AnyOrigin = "*"

// Headers of calls and answers beside those of Connect, for pages of other
// origins.
var (
	askedHeaders = []string{"Authorization", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "Hostd-Cluster", "Hostd-First-Attempt-Age"}
	toldHeaders  = []string{"ETag", "Retry-After", "Hostd-Cluster", "Hostd-Duplicate", "Hostd-Event-Count", "Hostd-Fuel", "Hostd-Node-Id"}
)

// CrossOrigin tells browsers that pages of the origins may call the node, and
// answers their preflight requests, which carry no credentials. Without origins
// it is next. What such pages send is let through by Origins.
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

// allowedOrigin reports whether a page of one of the origins asks, and says so.
func allowedOrigin(r *http.Request, origins []string) bool {
	origin := r.Header.Get("Origin")
	return origin != "" && (slices.Contains(origins, origin) || slices.Contains(origins, AnyOrigin))
}
