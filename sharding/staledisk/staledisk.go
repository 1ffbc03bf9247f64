// Package staledisk decides whether a starting node may vote in its raft
// groups.
//
// If a data directory is restored from an old copy, the node has forgotten
// votes that it cast and entries that it acknowledged since the copy was made.
// Letting it vote again could lose committed entries. Nothing in the directory
// shows that it is old, so the node asks other nodes, which remember its last
// start.
//
// A node of a multi-node cluster joins its groups only after a majority of the
// metadata shard's voters, itself included, has answered and none of them knows
// a later start than the directory does. Each of them records the new start
// durably before it answers (an attestation). Every later majority of the same
// voters therefore contains a node that knows the start, unless the restored
// node is the only node in both majorities. Because the voters may change, the
// last start recorded in the metadata counts as well. A start that is known
// only to lost disks or to nodes that are down is not detected.
//
// The package is pure: the caller exchanges the messages and makes the records
// durable. It starts no goroutine.
package staledisk

import (
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// Start is what a node sends when it asks for attestations.
type Start struct {
	Node sharding.NodeID
	// Attested is the newest start that, according to the node's directory,
	// passed the check. Requested is the start to be attested. Requested does
	// not change until it has passed, not even across restarts, because the
	// nodes that answered may already have recorded it.
	Attested, Requested uint64
}

// MaxLeap bounds how far Requested may be ahead of the start's own number. The
// distance is random, so that two copies of a directory do not request
// attestation of the same start.
const MaxLeap = 1 << 12

// IsStale reports whether the known start is later than the directory's last
// start, which shows that the directory is an older copy.
func (s Start) IsStale(known uint64) bool { return known > s.Attested && known != s.Requested }

// Witness is what one node remembers about the starts of other nodes. The zero
// value remembers nothing.
type Witness map[sharding.NodeID]uint64

// Evaluate checks a start. member is the newest start of the node in the
// metadata, 0 if there is none. It counts even if the node was removed, because
// the other nodes that recorded its last start may no longer vote. latest is the
// newest start known. If record is true, the start is new and must be recorded
// durably with Record before the answer is sent.
func (w Witness) Evaluate(s Start, member uint64) (latest uint64, record bool) {
	latest = max(w[s.Node], member)
	return latest, !s.IsStale(latest) && w[s.Node] < s.Requested
}

// Record returns a copy of the witness that also remembers the start.
func (w Witness) Record(s Start) Witness {
	next := maps.Clone(w)
	if next == nil {
		next = Witness{}
	}
	next[s.Node] = max(next[s.Node], s.Requested)
	return next
}

// Answer is the answer of one node.
type Answer struct {
	From   sharding.NodeID
	Latest uint64 // newest start of the asking node that the answering node knows; 0 if none
	// Voters are the voters of the metadata shard as of log index Index. The list
	// is empty if the answering node runs a release that does not report them.
	Index  uint64
	Voters []sharding.NodeID
}

// Result is the state of a check.
type Result int

// The results. Pending changes to one of the other results, which are final.
const (
	Pending Result = iota
	Passed
	// Stale: the directory is an older copy, and its replicas are lost.
	Stale
)

// Check is the stale-disk check of one start of a node. It belongs to one
// goroutine.
type Check struct {
	start   Start
	index   uint64
	voters  []sharding.NodeID
	answers map[sharding.NodeID]bool
	result  Result
}

// New begins the check of a start. voters are the voters of the metadata shard
// as of the index that the node has applied.
func New(s Start, index uint64, voters []sharding.NodeID) *Check {
	p := &Check{start: s, index: index, voters: slices.Clone(voters), answers: map[sharding.NodeID]bool{s.Node: true}}
	p.countVoters()
	return p
}

// AddAnswer adds an answer.
func (p *Check) AddAnswer(a Answer) {
	if p.result != Pending {
		return
	}
	if p.start.IsStale(a.Latest) {
		p.result = Stale
		return
	}
	p.answers[a.From] = true
	// The voters may have changed while the node was away, so use the newest
	// known set.
	if a.Index > p.index && len(a.Voters) > 0 {
		p.index, p.voters = a.Index, slices.Clone(a.Voters)
	}
	p.countVoters()
}

// HasAnswered reports whether the node has answered.
func (p *Check) HasAnswered(node sharding.NodeID) bool { return p.answers[node] }

// Voters returns the voters of which a majority must answer. The caller must
// not modify the slice.
func (p *Check) Voters() []sharding.NodeID { return p.voters }

// Result returns the state of the check.
func (p *Check) Result() Result { return p.result }

func (p *Check) countVoters() {
	answered := 0
	for _, v := range p.voters {
		if p.answers[v] {
			answered++
		}
	}
	if answered > len(p.voters)/2 {
		p.result = Passed
	}
}
