// Package probation decides whether a node that starts may vote. A data
// directory that was put back as it was some starts ago has forgotten what the
// node promised since: its replicas are lost, although its disk is not empty.
// Nothing in the directory shows that; others remember the node's last start.
//
// A node of several takes no part in its groups until a majority of the voters
// of the metadata shard, itself counted, has answered, and none of them knows a
// later start than the directory does. Each records the new start durably
// before it answers, so any later majority has one that knows it. A start that
// only lost disks knew cannot be noticed.
//
// The package is pure: who is asked, how, and what is durable, is the caller's.
// It starts no goroutine.
package probation

import (
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// Start is what a node says of itself when it asks to be vouched for.
type Start struct {
	Node sharding.NodeID
	// Vouched is the newest start of the node that its directory knows to have
	// passed, Asked the one that is asked about. Asked stays the same until it
	// has passed, over restarts too: those who answered may have it on record.
	Vouched, Asked uint64
}

// MaxLeap bounds how far Asked is beyond the number of the start itself: it is
// drawn, so that two copies of a directory do not ask about the same.
const MaxLeap = 1 << 12

// Later reports whether a start that is known of the node was made after the
// directory's last one: the directory is an older copy.
func (s Start) Later(known uint64) bool { return known > s.Vouched && known != s.Asked }

// Witness is what one node remembers of the starts of others. The zero value
// remembers none.
type Witness map[sharding.NodeID]uint64

// Judge answers a start; member is the start of the node that the metadata
// knows of, 0 for none. latest is the newest that is known. Where record is
// true the start is new and must be on record durably, by Record, before the
// answer goes out.
func (w Witness) Judge(s Start, member uint64) (latest uint64, record bool) {
	latest = max(w[s.Node], member)
	return latest, !s.Later(latest) && w[s.Node] < s.Asked
}

// Record returns a witness that remembers the start too.
func (w Witness) Record(s Start) Witness {
	next := maps.Clone(w)
	if next == nil {
		next = Witness{}
	}
	next[s.Node] = max(next[s.Node], s.Asked)
	return next
}

// Answer is what one node says.
type Answer struct {
	From   sharding.NodeID
	Latest uint64 // the newest start of the asking node that it knows; 0 for none
	// Voters of the metadata shard, as of a log index of it. A node of a release
	// that does not answer this has none.
	Index  uint64
	Voters []sharding.NodeID
}

// Verdict is where a probation stands.
type Verdict int

// The verdicts. Waiting becomes one of the others, which are final.
const (
	Waiting Verdict = iota
	Passed
	// Older: the directory is an older copy, and its replicas are lost.
	Older
)

// Probation is the time of a start before its node may vote. It belongs to one
// goroutine.
type Probation struct {
	start   Start
	index   uint64
	voters  []sharding.NodeID
	answers map[sharding.NodeID]bool
	verdict Verdict
}

// New begins the probation of a start. voters are those of the metadata shard
// as of the index that the node has applied.
func New(s Start, index uint64, voters []sharding.NodeID) *Probation {
	p := &Probation{start: s, index: index, voters: slices.Clone(voters), answers: map[sharding.NodeID]bool{s.Node: true}}
	p.count()
	return p
}

// Take takes an answer.
func (p *Probation) Take(a Answer) {
	if p.verdict != Waiting {
		return
	}
	if p.start.Later(a.Latest) {
		p.verdict = Older
		return
	}
	p.answers[a.From] = true
	// Voters change while a node is away: the newest view counts.
	if a.Index > p.index && len(a.Voters) > 0 {
		p.index, p.voters = a.Index, slices.Clone(a.Voters)
	}
	p.count()
}

// Answered reports whether a node has answered.
func (p *Probation) Answered(node sharding.NodeID) bool { return p.answers[node] }

// Voters returns the voters whose majority is waited for. They are not to be
// changed.
func (p *Probation) Voters() []sharding.NodeID { return p.voters }

// Verdict returns where the probation stands.
func (p *Probation) Verdict() Verdict { return p.verdict }

func (p *Probation) count() {
	answered := 0
	for _, v := range p.voters {
		if p.answers[v] {
			answered++
		}
	}
	if answered > len(p.voters)/2 {
		p.verdict = Passed
	}
}
