package journal_test

import (
	"encoding/hex"
	"errors"
	"math"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestRetainingSnapshotBytes pins the bytes of a snapshot with a retention. A
// snapshot without a retention is encoded as in version 1.
func TestRetainingSnapshotBytes(t *testing.T) {
	s := journal.Snapshot{Entity: sharding.EntityID{Type: "cart", ID: "c"}, Sequence: 9, Module: journal.Digest{7}, Window: 3, Keep: 2, State: []byte("state")}
	plain := journal.AppendSnapshot(nil, &s)
	s.Retain = 101
	raw := journal.AppendSnapshot(nil, &s)
	var back journal.Snapshot
	if err := back.Decode(raw); err != nil || back.Retain != 101 || string(journal.AppendSnapshot(nil, &back)) != string(raw) {
		t.Fatalf("%+v %v", back, err)
	}
	if err := back.Decode(plain); err != nil || back.Retain != 0 || plain[8] != 1 || raw[8] != 2 {
		t.Errorf("%+v %v", back, err)
	}
	s.Retain = 0
	none := journal.AppendSnapshot(nil, &s)
	none[8] = 2 // without the field
	if err := back.Decode(none); !errors.Is(err, journal.ErrDamaged) {
		t.Error(err)
	}
	golden(t, "retention.txt", hex.Dump(raw))
}

// TestCheckpointBytes pins the bytes of checkpoints, with and without a
// retention. A checkpoint that names a module is rejected as damaged.
func TestCheckpointBytes(t *testing.T) {
	s := journal.Snapshot{Entity: sharding.EntityID{Type: "payout", ID: "p"}, Sequence: 9, Window: 3, Keep: 2, State: []byte("state"), Checkpoint: true, Chain: 7}
	plain := journal.AppendSnapshot(nil, &s)
	s.Retain = 101
	raw := journal.AppendSnapshot(nil, &s)
	var back journal.Snapshot
	for _, b := range [][]byte{plain, raw} {
		if err := back.Decode(b); err != nil || !back.Checkpoint || back.Chain != 7 || b[8] != 3 || string(journal.AppendSnapshot(nil, &back)) != string(b) {
			t.Errorf("%+v %v", back, err)
		}
	}
	if back.Retain != 101 || len(plain) != len(raw) {
		t.Errorf("%+v", back)
	}
	s.Module = journal.Digest{1}
	if err := back.Decode(journal.AppendSnapshot(nil, &s)); !errors.Is(err, journal.ErrDamaged) {
		t.Error(err)
	}
	golden(t, "checkpoint.txt", hex.Dump(raw))
}

func TestCutBefore(t *testing.T) {
	for _, c := range []struct {
		sequence journal.Sequence
		retain   uint64
		window   journal.Sequence
		want     journal.Sequence
	}{
		{100, 0, 50, 0}, {100, 1, 50, 50}, {100, 1, 100, 100}, {100, 11, 100, 91}, {100, 11, 50, 50}, {100, 101, 100, 1},
		{100, 102, 100, 0}, {100, math.MaxUint64, 100, 0}, {1, 1, 1, 1},
	} {
		s := journal.Snapshot{Sequence: c.sequence, Retain: c.retain}
		if got := s.CutBefore(c.window); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
