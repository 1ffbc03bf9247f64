package history

import (
	"context"
	"errors"

	"github.com/hostd/hostd/journal"
)

// errFirst ends reading after the first record.
var errFirst = errors.New("first record found")

// Takeovers returns the takeovers of the entity in order, if its first records
// were truncated, and none otherwise. It reads one record and the snapshots.
func (e *Entity) Takeovers(ctx context.Context) (all []journal.Takeover, err error) {
	if e.Cut == nil || e.Deleted || e.Snapshots.Len() == 0 {
		return nil, nil
	}
	var t journal.Takeover
	err = e.Read(ctx, Reading{From: e.Cut.Sequence}, func(_ journal.Position, r *journal.Record, _ journal.Hash) error {
		t.Sequence, t.Before = r.Last(), r.Module
		return errFirst
	})
	if err != nil && !errors.Is(err, errFirst) {
		return nil, err
	}
	for i, at := range e.Snapshots[:e.Snapshots.Len()] {
		s, err := e.SnapshotAt(at)
		if err != nil {
			return nil, err
		}
		if s.Checkpoint {
			return nil, nil // every module loads it
		}
		first := i == 0 && (t.Sequence == 0 || at < t.Sequence) // the record is later
		if !first && s.Module != t.Before {
			t.Snapshot, t.By = at, s.Module
			all = append(all, t)
		}
		t = journal.Takeover{Sequence: at, Before: s.Module}
	}
	return all, nil
}
