package admission

import (
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/procedure"
)

// gateNode is the node behind a gate.
type gateNode interface {
	// Opened returns nil if the node accepts calls, and otherwise the reason
	// why it does not yet.
	Opened() error
	// Cluster returns the id of the node's cluster, or "" if it has none.
	Cluster() string
}

// Gate rejects RPCs, except InitializeCluster, with unavailable until the node is
// open, and rejects calls that are meant for a different cluster. It passes requests
// for the node's internal services on at any time, because these check and limit
// their requests themselves.
type Gate struct {
	Node gateNode
	// AnyCluster accepts calls that are meant for any cluster.
	AnyCluster bool
	Internal   map[string]http.Handler // the internal services, by path prefix
	// Authenticate wraps the handler of requests that are not internal; nil
	// disables authentication.
	Authenticate func(next http.Handler) http.Handler
}

// Wrap puts the gate in front of public.
func (g Gate) Wrap(public http.Handler) http.Handler {
	var calls http.Handler = g.admit(public)
	if g.Authenticate != nil {
		calls = g.Authenticate(calls)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if internal := internalHandler(r, g.Internal); internal != nil {
			internal.ServeHTTP(w, r)
			return
		}
		calls.ServeHTTP(w, r)
	})
}

// admit passes on calls that the node accepts and that are for its cluster.
func (g Gate) admit(public http.Handler) http.HandlerFunc {
	refuse := connect.NewErrorWriter()
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.Count(r.URL.Path, "/") > 1 && !beforeOpen(r.URL.Path) {
			if err := g.Node.Opened(); err != nil {
				refuse.Write(w, r, connect.NewError(connect.CodeUnavailable, fmt.Errorf("this node does not serve calls yet: %w", err)))
				return
			}
		}
		if err := g.sameCluster(w.Header(), r.Header); err != nil {
			refuse.Write(w, r, connect.NewError(connect.CodeFailedPrecondition, err))
			return
		}
		public.ServeHTTP(w, r)
	}
}

// beforeOpen reports whether a node answers calls of a procedure before it is
// open.
func beforeOpen(path string) bool {
	p := procedure.At(path)
	return p != nil && p.BeforeOpen
}

// clusterHeader is the header with a cluster id: in a request the cluster that
// it is meant for, in a response the cluster of the node.
const clusterHeader = "Hostd-Cluster"

// sameCluster sets the header of the response, and fails if the call is for a
// different cluster.
func (g Gate) sameCluster(answer, call http.Header) error {
	if g.AnyCluster {
		return nil
	}
	id := g.Node.Cluster()
	if id == "" {
		return nil
	}
	answer[clusterHeader] = []string{id}
	if wanted := call.Get(clusterHeader); wanted != "" && wanted != id {
		return fmt.Errorf("this node belongs to cluster %.64q, but the call is for cluster %.64q", id, wanted)
	}
	return nil
}

// internalHandler returns the handler of a call between nodes, nil for any
// other.
func internalHandler(r *http.Request, internal map[string]http.Handler) http.Handler {
	for prefix, h := range internal {
		if strings.HasPrefix(r.URL.Path, prefix) {
			return h
		}
	}
	return nil
}

// Only returns a handler that serves calls between nodes and rejects all others.
func Only(internal map[string]http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := internalHandler(r, internal); h != nil {
			h.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	})
}

// Referring serves calls between nodes while at returns "", except calls that
// are only for the peer listener. When at returns an address, it answers 404
// with a header that names the address.
func Referring(internal map[string]http.Handler, at func() string) map[string]http.Handler {
	out := make(map[string]http.Handler, len(internal))
	for prefix, h := range internal {
		out[prefix] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if address := at(); address != "" {
				w.Header().Set(network.PeerAddressHeader, address)
				http.NotFound(w, r)
				return
			}
			if r.Header.Get(network.NodesAloneHeader) != "" {
				http.NotFound(w, r)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	return out
}

// Health passes on health probes and requests for metrics, and answers 404 to
// everything else.
func Health(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isProbe(r) || r.URL.Path == MetricsPath || strings.HasPrefix(r.URL.Path, "/"+grpchealth.HealthV1ServiceName+"/") {
			next.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	})
}

// MetricsPath is the path of the metrics.
const MetricsPath = "/metrics"

// Paths of the health probes.
const (
	LivePath  = "/livez"
	ReadyPath = "/readyz"
)

// isProbe reports whether the request is a health probe.
func isProbe(r *http.Request) bool { return r.URL.Path == LivePath || r.URL.Path == ReadyPath }
