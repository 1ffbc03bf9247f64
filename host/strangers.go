package host

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
)

const (
	// strangerEvery is the minimum interval between reports about the same node
	// and procedure. A removed node keeps calling until somebody stops it.
	strangerEvery = time.Minute
	// maxStrangers bounds the number of remembered reports. Beyond this
	// number, all reports are forgotten.
	maxStrangers = 1024
)

// strangers remembers which rejected calls of non-members were reported.
type strangers struct {
	mu       sync.Mutex
	reported map[string]time.Time // by node and procedure
}

// isNew reports whether a rejected call should be reported, and remembers it.
func (s *strangers) isNew(node sharding.NodeID, procedure string, now time.Time) bool {
	key := string(node) + " " + procedure
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.reported[key]; known && now.Sub(at) < strangerEvery {
		return false
	}
	if s.reported == nil || len(s.reported) >= maxStrangers {
		s.reported = map[string]time.Time{}
	}
	s.reported[key] = now
	return true
}

// PeerRefused reports a call of a node that is not a member of the cluster: in
// the log and, if enabled, in the audit log.
func (o neighbors) PeerRefused(r *http.Request, node sharding.NodeID, why error) {
	n := o.n
	if !errors.Is(why, peer.ErrNotMember) && !errors.Is(why, peer.ErrPutDown) && !errors.Is(why, peer.ErrWrongIdentity) {
		return
	}
	procedure := r.URL.Path
	if called, passed := strings.CutPrefix(procedure, strings.TrimSuffix(leaderproxy.Path, "/")); passed {
		procedure = called
	}
	if !n.strangers.isNew(node, procedure, time.Now()) {
		return
	}
	n.logger.Warn("rejected a call from a node that is not a member", "node_id", node, "address", r.RemoteAddr, "procedure", procedure, "error", why)
	n.audit.RefusedNode(string(node), r.RemoteAddr, procedure, why.Error())
}
