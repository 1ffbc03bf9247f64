package cluster

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

const (
	// applicantTime is how long a node that asked for admission counts as
	// waiting. A waiting node asks again every few seconds.
	applicantTime = 15 * time.Second
	// maxApplicants bounds the recorded nodes.
	maxApplicants = 64
)

// applicants are the nodes that recently asked this node for admission.
type applicants struct {
	mu    sync.Mutex
	nodes map[sharding.NodeID]applicant
}

// applicant is a node that asked for admission, with the time of its last
// request.
type applicant struct {
	meta.Member
	at time.Time
}

// note records that a node asks for admission.
func (w *applicants) note(m meta.Member, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expire(now)
	if w.nodes == nil {
		w.nodes = map[sharding.NodeID]applicant{}
	}
	if _, known := w.nodes[m.Node]; known || len(w.nodes) < maxApplicants {
		w.nodes[m.Node] = applicant{m, now}
	}
}

// remove removes a node that was admitted or never will be.
func (w *applicants) remove(node sharding.NodeID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.nodes, node)
}

// list returns the nodes that still wait, by name.
func (w *applicants) list(now time.Time) []meta.Member {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expire(now)
	out := make([]meta.Member, 0, len(w.nodes))
	for _, n := range w.nodes {
		out = append(out, n.Member)
	}
	slices.SortFunc(out, func(a, b meta.Member) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// expire removes old entries. w.mu must be held.
func (w *applicants) expire(now time.Time) {
	maps.DeleteFunc(w.nodes, func(_ sharding.NodeID, n applicant) bool { return now.Sub(n.at) > applicantTime })
}
