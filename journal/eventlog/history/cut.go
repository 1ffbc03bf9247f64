package history

import (
	"context"
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
)

// cutRecords bounds the records that one snapshot has cut: the next one goes
// on.
const cutRecords = 4096

// errCutFound ends the reading of what is to be cut.
var errCutFound = errors.New("what is to be cut is read")

// Cutting is what a snapshot cuts off an entity's records.
type Cutting struct {
	Cut            *store.Cut // nil: nothing
	Records, Bytes uint64
}

// CutBy finds what a snapshot of the entity cuts, which keeps these snapshots
// once it is taken.
func (e *Entity) CutBy(s *journal.Snapshot, kept store.Snapshots) (c Cutting, err error) {
	window := s.Window
	if oldest := kept[0]; oldest != s.Sequence {
		old, err := e.SnapshotAt(oldest)
		if err != nil {
			return c, err
		}
		window = old.Window
	}
	before := s.CutBefore(window)
	f := &follower{ctx: context.Background(), end: e.Head.Last}
	f.anchor(e.Cut)
	var last store.Cut
	f.fn = func(at journal.Position, _ *journal.Record, after journal.Hash) error {
		if f.view.Last() >= before || c.Records == cutRecords {
			return errCutFound
		}
		c.Records++
		c.Bytes += uint64(len(f.view.Raw))
		last = store.Cut{Sequence: f.view.Last(), Hash: after, Last: at}
		return nil
	}
	if err = e.walk(f); err != nil && !errors.Is(err, errCutFound) {
		return Cutting{}, fmt.Errorf("cut the records of an entity: %w", err)
	}
	if last.Sequence == 0 {
		return Cutting{}, nil // no event would be gone
	}
	c.Cut = &last
	return c, nil
}
