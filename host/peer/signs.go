package peer

import "sync/atomic"

// Signs records the signs of life of a node. Arriving bytes only show that the
// goroutines of its network run; a node whose raft loop hangs, for example
// on a disk that does not answer, still sends bytes. Therefore a node that
// reports the iterations of its raft loop counts as alive only while that
// number changes.
//
// Times are the caller's, in any unit, and must not go back. The methods are
// safe for concurrent use.
type Signs struct {
	last  atomic.Int64 // when something last arrived, or when the node became known
	spoke atomic.Bool  // something has ever arrived
	turns atomic.Uint64
	grew  atomic.Int64 // when turns last changed
	ended atomic.Bool  // the process seems to have ended after the last arrival
}

// Patience is how long a node counts as alive without a sign of life.
type Patience struct {
	// Suspect is the time without any arriving byte after which the node is
	// suspected.
	Suspect int64
	// Stall is the time without progress of the node's raft loop after which
	// the node is suspected. It is longer than Suspect, because a disk that is
	// slow for a moment is not dead.
	Stall int64
}

// Begin starts the time for a node from which nothing has arrived yet.
func (s *Signs) Begin(now int64) { s.last.Store(now) }

// NoteArrival records that something arrived.
func (s *Signs) NoteArrival(now int64) {
	s.last.Store(now)
	s.spoke.Store(true)
	s.ended.Store(false)
}

// NoteTurns records the iterations of the node's raft loop. 0 is ignored: the node
// has no loop yet, or its release does not report it.
func (s *Signs) NoteTurns(turns uint64, now int64) {
	if turns != 0 && s.turns.Swap(turns) != turns {
		s.grew.Store(now)
	}
}

// Renew forgets the loop counter of an older incarnation of the node.
func (s *Signs) Renew() { s.turns.Store(0) }

// End records that the node's process seems to have ended.
func (s *Signs) End() { s.ended.Store(true) }

// hasEnded reports whether End was called and nothing has arrived since.
func (s *Signs) hasEnded() bool { return s.ended.Load() }

// IsSuspected reports whether the node is suspected. Silence before the time
// since does not count.
func (s *Signs) IsSuspected(now, since int64, p Patience) bool {
	return now-max(s.last.Load(), since) >= p.Suspect ||
		s.turns.Load() != 0 && now-max(s.grew.Load(), since) >= p.Stall
}

// IsAlive reports whether the node counts as alive. It is stricter than
// !IsSuspected: the node must have sent something, and old signs do not count
// even if the watcher was paused.
func (s *Signs) IsAlive(now int64, p Patience) bool {
	return s.spoke.Load() && !s.IsSuspected(now, 0, p)
}
