package peer

import "sync/atomic"

// Signs are what a node has shown of itself. Bytes alone show only that the
// goroutines of its network run; a node whose raft loop stands still, as on a
// disk that does not answer, sends them too. So a node that tells how often its
// loop has gone round is heard only while that number changes.
//
// Times are the caller's, in any unit; they never go back. The methods may be
// called from several goroutines.
type Signs struct {
	last  atomic.Int64 // when something arrived, or the node became known
	spoke atomic.Bool  // something arrived ever
	turns atomic.Uint64
	grew  atomic.Int64 // when turns became another
	ended atomic.Bool  // its process seems to have, since something arrived last
}

// Patience is how long a node counts as heard without a sign of it.
type Patience struct {
	// Silent is how long nothing may arrive.
	Silent int64
	// Stands is how long its raft loop may stand still. It is longer: a disk
	// that is slow for a moment is not dead.
	Stands int64
}

// Begin makes a node known that nothing was heard of yet.
func (s *Signs) Begin(now int64) { s.last.Store(now) }

// Arrived notes that something came.
func (s *Signs) Arrived(now int64) {
	s.last.Store(now)
	s.spoke.Store(true)
	s.ended.Store(false)
}

// Turned notes how often the node's loop has gone round. 0 says nothing: the
// node has no loop yet, or is of a release that does not tell.
func (s *Signs) Turned(turns uint64, now int64) {
	if turns != 0 && s.turns.Swap(turns) != turns {
		s.grew.Store(now)
	}
}

// Renew forgets what an older start of the node told.
func (s *Signs) Renew() { s.turns.Store(0) }

// End notes that the node's process seems to have ended.
func (s *Signs) End() { s.ended.Store(true) }

// Ended says whether the node's process seems to have ended: it was noted, and
// nothing has arrived since.
func (s *Signs) Ended() bool { return s.ended.Load() }

// Silent says whether the node counts as silent. Nothing before since counts as
// silence.
func (s *Signs) Silent(now, since int64, p Patience) bool {
	return now-max(s.last.Load(), since) >= p.Silent ||
		s.turns.Load() != 0 && now-max(s.grew.Load(), since) >= p.Stands
}

// Heard says whether the node counts as heard, which it never does before
// something came. It is stricter than not being silent: what is too long ago
// does not count, whatever the watcher was doing since.
func (s *Signs) Heard(now int64, p Patience) bool {
	return s.spoke.Load() && !s.Silent(now, 0, p)
}
