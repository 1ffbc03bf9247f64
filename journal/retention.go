package journal

import "fmt"

// TruncatedError means that the requested events were compacted: they precede the
// first event that is kept. Retrying returns the same error.
type TruncatedError struct{ First Sequence }

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("events before sequence %d were truncated by the entity type's retention", e.First)
}

// CutBefore returns the sequence before which the snapshot truncates records,
// given the Window of the oldest kept snapshot. Records that end before that
// sequence are removed; 0 removes no records.
func (s *Snapshot) CutBefore(window Sequence) Sequence {
	if s.Retain == 0 || uint64(s.Sequence)+2 <= s.Retain {
		return 0
	}
	return min(window, s.Sequence+2-Sequence(s.Retain))
}
