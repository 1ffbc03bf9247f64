package journal

import "fmt"

// CutError: what is asked for is before the first event of the entity that is
// kept. A retry finds no more.
type CutError struct{ First Sequence }

func (e *CutError) Error() string {
	return fmt.Sprintf("the events before sequence %d were cut, as the entity type retains no more", e.First)
}

// CutBefore is the sequence before which a snapshot has records cut, given the
// window of the oldest snapshot that is kept: those that end before it. 0 is
// none of them.
func (s *Snapshot) CutBefore(window Sequence) Sequence {
	if s.Retain == 0 || uint64(s.Sequence)+2 <= s.Retain {
		return 0
	}
	return min(window, s.Sequence+2-Sequence(s.Retain))
}
