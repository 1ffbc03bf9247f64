package admission

import (
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"

	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host/network"
)

// Gate answers unavailable to every RPC but Initialize until the node can take
// some, refuses calls that are for another cluster, and hands the node's own
// services, which check and bound what they take themselves, what is meant for
// them at any time.
type Gate struct {
	Opened   func() error            // why the node takes no call yet; nil: it does
	Cluster  func() string           // the id of the node's, empty while it has none; nil: none
	Internal map[string]http.Handler // the node's own, by the prefix of their paths
	// Authenticate has what is not between nodes pass it first; nil: nobody is
	// asked who calls.
	Authenticate func(next http.Handler) http.Handler
}

// Wrap has calls pass the gate.
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

// admit lets calls through that the node can take and that are for its cluster.
func (g Gate) admit(public http.Handler) http.HandlerFunc {
	refuse := connect.NewErrorWriter()
	return func(w http.ResponseWriter, r *http.Request) {
		if g.Opened != nil && strings.Count(r.URL.Path, "/") > 1 && r.URL.Path != clusterv1connect.ClusterServiceInitializeProcedure {
			if err := g.Opened(); err != nil {
				refuse.Write(w, r, connect.NewError(connect.CodeUnavailable, fmt.Errorf("this node is not open yet: %w", err)))
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

// clusterHeader names a cluster: in a call the one that it is for, in an answer
// that of the node.
const clusterHeader = "Hostd-Cluster"

// sameCluster puts the node's cluster into an answer, and refuses a call that is
// for another.
func (g Gate) sameCluster(answer, call http.Header) error {
	if g.Cluster == nil {
		return nil
	}
	id := g.Cluster()
	if id == "" {
		return nil
	}
	answer[clusterHeader] = []string{id}
	if wanted := call.Get(clusterHeader); wanted != "" && wanted != id {
		return fmt.Errorf("this node belongs to cluster %.64q, the call is for %.64q", id, wanted)
	}
	return nil
}

// internalHandler is what serves a call between nodes, nil for any other.
func internalHandler(r *http.Request, internal map[string]http.Handler) http.Handler {
	for prefix, h := range internal {
		if strings.HasPrefix(r.URL.Path, prefix) {
			return h
		}
	}
	return nil
}

// Only serves calls between nodes and nothing else.
func Only(internal map[string]http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := internalHandler(r, internal); h != nil {
			h.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	})
}

// Referring serves calls between nodes while at is empty, but for those that
// are for the other listener. After that it answers 404, with where they are
// served.
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

// Health passes on what asks how the node is, its metrics too, and nothing
// else.
func Health(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isProbe(r) || r.URL.Path == MetricsPath || strings.HasPrefix(r.URL.Path, "/"+grpchealth.HealthV1ServiceName+"/") {
			next.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	})
}

// MetricsPath is that of the metrics.
const MetricsPath = "/metrics"

// The probes of health.
const (
	LivePath  = "/livez"
	ReadyPath = "/readyz"
)

// isProbe reports whether somebody asks for the health of the node.
func isProbe(r *http.Request) bool { return r.URL.Path == LivePath || r.URL.Path == ReadyPath }
