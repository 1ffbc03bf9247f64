package history

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
)

// truncateRecords limits the number of records that a snapshot truncates in an
// entry that is not paced. Their size is not limited.
const truncateRecords = 4096

// errTruncationFound ends reading the records to truncate.
var errTruncationFound = errors.New("truncation found")

// Truncation describes the records of an entity that a snapshot removes.
type Truncation struct {
	Cut            *store.Cut // nil if nothing is removed
	Records, Bytes uint64
}

// TruncateBy finds what a snapshot of the entity truncates at once, given the
// snapshots kept after it.
func (e *Entity) TruncateBy(s *journal.Snapshot, kept store.Snapshots) (c Truncation, err error) {
	before, err := e.TruncateBefore(s, kept)
	if err != nil {
		return c, err
	}
	c, _, err = e.TruncateSlice(before, truncateRecords, math.MaxInt)
	return c, err
}

// TruncateBefore returns the sequence before which a snapshot of the entity
// truncates records, given the snapshots kept after it.
func (e *Entity) TruncateBefore(s *journal.Snapshot, kept store.Snapshots) (journal.Sequence, error) {
	window := s.Window
	if oldest := kept[0]; oldest != s.Sequence {
		old, err := e.SnapshotAt(oldest)
		if err != nil {
			return 0, err
		}
		window = old.Window
	}
	return s.CutBefore(window), nil
}

// TruncateSlice finds the records to truncate next among the records that end
// before a sequence. It stops at the given number of records or bytes. done
// means that no such records are left.
func (e *Entity) TruncateSlice(before journal.Sequence, records, bytes int) (c Truncation, done bool, err error) {
	f := &follower{ctx: context.Background(), end: e.Head.Last}
	if f.anchor(e.Cut); e.Cut != nil {
		f.from = e.Cut.Sequence // records that were truncated earlier are not read
	}
	var last store.Cut
	done = true
	f.fn = func(at journal.Position, _ *journal.Record, after journal.Hash) error {
		if f.view.Last() >= before {
			return errTruncationFound
		}
		// A truncation needs an event: records without events, with which an entity
		// may start, are truncated together with the first record that has an event.
		if n := int(c.Records); last.Sequence > 0 && (n >= records || int(c.Bytes) >= bytes) || n >= truncateRecords {
			done = last.Sequence == 0
			return errTruncationFound
		}
		c.Records++
		c.Bytes += uint64(len(f.view.Raw))
		last = store.Cut{Sequence: f.view.Last(), Hash: after, Last: at}
		return nil
	}
	if err = e.walk(f); err != nil && !errors.Is(err, errTruncationFound) {
		return Truncation{}, false, fmt.Errorf("truncate the records of an entity: %w", err)
	}
	if last.Sequence == 0 {
		return Truncation{}, done, nil // it would remove no event
	}
	c.Cut = &last
	return c, done, nil
}
