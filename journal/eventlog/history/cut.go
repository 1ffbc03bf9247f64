package history

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
)

// cutRecords bounds the records that a snapshot has cut at once, in an entry
// that is not paced; they may have any size.
const cutRecords = 4096

// errCutFound ends the reading of what is to be cut.
var errCutFound = errors.New("what is to be cut is read")

// Cutting is what a snapshot cuts off an entity's records.
type Cutting struct {
	Cut            *store.Cut // nil: nothing
	Records, Bytes uint64
}

// CutBy finds what a snapshot of the entity cuts at once, which keeps these
// snapshots once it is taken.
func (e *Entity) CutBy(s *journal.Snapshot, kept store.Snapshots) (c Cutting, err error) {
	before, err := e.CutBefore(s, kept)
	if err != nil {
		return c, err
	}
	c, _, err = e.CutSlice(before, cutRecords, math.MaxInt)
	return c, err
}

// CutBefore is the sequence before which a snapshot of the entity has records
// cut, which keeps these snapshots once it is taken.
func (e *Entity) CutBefore(s *journal.Snapshot, kept store.Snapshots) (journal.Sequence, error) {
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

// CutSlice finds which of the records that end before a sequence are cut next:
// as many as are asked for, until they have so many bytes. done says that no
// others are left.
func (e *Entity) CutSlice(before journal.Sequence, records, bytes int) (c Cutting, done bool, err error) {
	f := &follower{ctx: context.Background(), end: e.Head.Last}
	if f.anchor(e.Cut); e.Cut != nil {
		f.from = e.Cut.Sequence // what was cut before is not read
	}
	var last store.Cut
	done = true
	f.fn = func(at journal.Position, _ *journal.Record, after journal.Hash) error {
		if f.view.Last() >= before {
			return errCutFound
		}
		// A cut needs an event: records without, which an entity may begin with, are
		// cut together with the first that has one.
		if n := int(c.Records); last.Sequence > 0 && (n >= records || int(c.Bytes) >= bytes) || n >= cutRecords {
			done = last.Sequence == 0
			return errCutFound
		}
		c.Records++
		c.Bytes += uint64(len(f.view.Raw))
		last = store.Cut{Sequence: f.view.Last(), Hash: after, Last: at}
		return nil
	}
	if err = e.walk(f); err != nil && !errors.Is(err, errCutFound) {
		return Cutting{}, false, fmt.Errorf("cut the records of an entity: %w", err)
	}
	if last.Sequence == 0 {
		return Cutting{}, done, nil // no event would be gone
	}
	c.Cut = &last
	return c, done, nil
}
