// Package staledisk decides whether a starting node may vote in its raft
// groups.
//
// If a data directory is restored from an old copy, the node has forgotten
// votes that it cast and entries that it acknowledged since the copy was made.
// Letting it vote again could lose committed entries. Nothing in the directory
// shows that it is old, so the node asks other nodes, which remember its last
// incarnation.
//
// A node of a multi-node cluster joins its groups only after a majority of the
// metadata shard's voters, itself included, has answered and no answer names a
// later incarnation than the directory does. Each answering node durably
// records the new incarnation before it answers (an attestation). Every later
// majority of the same voters therefore contains a node that knows the
// incarnation, unless the restored node is the only node in both majorities.
// Because the voters may change, the last incarnation recorded in the metadata
// counts as well. An incarnation that is known only to lost disks or to nodes
// that are down is not detected.
//
// The package is pure: the caller exchanges the messages and makes the records
// durable. It starts no goroutine.
package staledisk

import (
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// Start is the request for attestations that a starting node sends.
type Start struct {
	Node sharding.NodeID
	// Attested is the newest incarnation that, according to the node's
	// directory, passed the check. Requested is the incarnation to be attested.
	// Requested does not change until it has passed the check, not even across
	// restarts, because the nodes that answered may already have recorded it.
	Attested, Requested uint64
}

// MaxLeap bounds the distance by which Requested may be ahead of the node's own
// incarnation. The distance is random, so that two copies of a directory do not
// request attestation of the same incarnation.
const MaxLeap = 1 << 12

// isStale reports whether the known incarnation is later than the directory's
// last incarnation, which shows that the directory is an older copy.
func (s Start) isStale(known uint64) bool { return known > s.Attested && known != s.Requested }

// Witness has the incarnations of other nodes that one node remembers. The zero
// value remembers nothing.
type Witness map[sharding.NodeID]uint64

// Evaluate checks a request. member is the newest incarnation of the node in
// the metadata, 0 if there is none. member counts even if the node was removed,
// because the other nodes that recorded its last incarnation may no longer
// vote. latest is the newest known incarnation. If record is true, the
// requested incarnation is new and must be recorded durably with Record before
// the answer is sent.
func (w Witness) Evaluate(s Start, member uint64) (latest uint64, record bool) {
	latest = max(w[s.Node], member)
	return latest, !s.isStale(latest) && w[s.Node] < s.Requested
}

// Record returns a copy of the witness that also remembers the requested
// incarnation.
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
	Latest uint64 // newest incarnation of the asking node that the answering node knows; 0 if none
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

// Check is the stale-disk check of one incarnation of a node. It belongs to one
// goroutine.
type Check struct {
	start   Start
	index   uint64
	voters  []sharding.NodeID
	answers map[sharding.NodeID]bool
	result  Result
}

// New begins the check of an incarnation. voters are the voters of the metadata
// shard as of the index that the node has applied.
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
	if p.start.isStale(a.Latest) {
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
