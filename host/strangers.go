package host

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/sharding"
)

const (
	// strangerEvery is how often a refusal is reported of a node and a procedure:
	// a node that was put down goes on asking until it is stopped.
	strangerEvery = time.Minute
	// maxStrangers bounds what is remembered of that. Past it all is forgotten.
	maxStrangers = 1024
)

// strangers are the nodes whose calls were refused since they are no members.
type strangers struct {
	mu       sync.Mutex
	reported map[string]time.Time // by node and procedure
}

// isNew says whether a refusal is to be reported.
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

// peerRefused reports a call of a node that is none of the cluster's: in the log
// and, where there is one, in the audit log.
func (n *Node) peerRefused(r *http.Request, node sharding.NodeID, why error) {
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
	n.logger.Warn("refused the call of a node that is no member", "node_id", node, "address", r.RemoteAddr, "procedure", procedure, "error", why)
	n.audit.RefusedNode(string(node), r.RemoteAddr, procedure, why.Error())
}
