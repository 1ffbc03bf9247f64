package wal

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/disk/disktest"
)

// TestDamageToOneMarkSlotIsTolerated damages one slot of the mark at a time.
// The log must still open.
func TestDamageToOneMarkSlotIsTolerated(t *testing.T) {
	for slot := range int64(markSlots) {
		w := threeSegments(t)
		if err := w.disk.Corrupt(path(markName), slot*markSlotBytes+50, 1); err != nil {
			t.Fatal(err)
		}
		if report, err := verify(w.disk, testDir); err != nil || report.IsDamaged() || len(report.Findings) == 0 {
			t.Errorf("verify: %+v, %v", report, err)
		}
		w.open(t)
		if got := replayed(t, w.Log); !slices.Equal(got, w.appended) {
			t.Errorf("slot %d: %v", slot, got)
		}
	}
}

// TestMarkIsSyncedEachSecond checks that the mark is synced about once a second
// while records are appended, and once when the log is idle.
func TestMarkIsSyncedEachSecond(t *testing.T) {
	w := newTestLog(t, Options{})
	start := w.Stats().MarkSyncs
	for range 30 {
		w.now = w.now.Add(100 * time.Millisecond)
		w.add(t, "x")
		w.sync(t)
		if _, err := w.Release(Position{}); err != nil {
			t.Fatal(err)
		}
	}
	rolls := uint64(len(w.Segments()) - 1)
	if got := w.Stats().MarkSyncs - start; got < 3 || got > 3+rolls {
		t.Errorf("%d syncs of the mark in 3 s and %d new segments", got, rolls)
	}
	got := w.Stats().MarkSyncs
	w.add(t, "y")
	w.sync(t)
	for range 30 {
		w.now = w.now.Add(100 * time.Millisecond)
		if err := w.SyncMark(); err != nil {
			t.Fatal(err)
		}
	}
	if w.Stats().MarkSyncs != got+1 {
		t.Errorf("%d syncs of the mark of an idle log", w.Stats().MarkSyncs-got)
	}
}

// TestNewSegmentSyncsTheMark cuts the power right after a new segment was
// created. The mark must include that segment.
func TestNewSegmentSyncsTheMark(t *testing.T) {
	w := newTestLog(t, Options{})
	for want := uint64(2); want < 20; want++ {
		for w.Tail().Segment < want {
			w.add(t, "x")
		}
		w.sync(t)
		w.disk.Crash()
		report, err := verify(w.disk, testDir)
		if err != nil || report.Mark.Segment != want {
			t.Errorf("mark at %v in segment %d, %v", report.Mark, want, err)
		}
		w.open(t)
	}
}

// TestMarkSurvivesItsFailedSync fails the sync of the mark, lets the next
// process read the slot that is not on disk, and cuts the power during each of
// the first operations of that process.
func TestMarkSurvivesItsFailedSync(t *testing.T) {
	for seed := range uint64(200) {
		w := newTestLog(t, Options{Rand: rand.New(rand.NewPCG(seed, 3)).Uint64})
		w.disk = disktest.NewCrashable(rand.New(rand.NewPCG(seed, 4)))
		w.open(t)
		w.add(t, numbered(0, 30)...)
		w.sync(t)
		if freed, err := w.Release(w.Tail()); freed != 2 || err != nil {
			t.Fatal(freed, err)
		}
		w.add(t, "last")
		w.now = w.now.Add(markInterval)
		w.disk.FailSync(2, syscall.EIO)
		if _, err := w.Sync(); !errors.Is(err, ErrPoisoned) {
			t.Fatal(err)
		}
		w.disk.Kill()
		w.disk.CutAfter(int(seed % 10))
		if log, err := Open(w.disk, testDir, w.opts); err != nil && !errors.Is(err, disktest.ErrPowerCut) {
			t.Fatal(err)
		} else if err == nil {
			log.closeFiles()
		}
		w.disk.Crash()
		w.open(t)
		if got := replayed(t, w.Log); len(got) < 6 {
			t.Fatalf("seed %d: %v", seed, got)
		}
	}
}

// TestLaterRecordProvesDamage loses the mark's last second, as a power cut
// does, and damages data that was synced in that second. Later records prove
// the damage, which the mark does not show.
func TestLaterRecordProvesDamage(t *testing.T) {
	w := newTestLog(t, Options{})
	w.add(t, "one")
	w.sync(t)
	old, err := disk.ReadFile(w.disk, path(markName))
	if err != nil {
		t.Fatal(err)
	}
	two := w.add(t, "two")
	w.sync(t)
	three := w.add(t, "three")
	w.sync(t)
	w.disk.Kill()
	replace(t, w.disk, markName, func([]byte) []byte { return old })

	if err := w.disk.Corrupt(path(segmentName(1)), two.Offset+100, 1); err != nil {
		t.Fatal(err)
	}
	damage := refused(t, w, segmentName(1))
	if damage.Offset != two.Offset {
		t.Errorf("damage at %d, want %d: %v", damage.Offset, two.Offset, damage)
	}
	if err := w.disk.Corrupt(path(segmentName(1)), two.Offset+100, 1); err != nil {
		t.Fatal(err)
	}

	// No later record says that the last record was synced, so damage to the
	// last record cannot be distinguished from a torn write.
	if err := w.disk.Corrupt(path(segmentName(1)), three.Offset+100, 1); err != nil {
		t.Fatal(err)
	}
	w.open(t)
	if got := replayed(t, w.Log); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("got %v", got)
	}
}

// TestDamagedMarkIsNamedInsteadOfReleasedSegment flips one bit in the slot that released segments. The
// other slots still list those segments, so the error must name the mark and not a released segment.
// AcceptLoss then loses only that slot.
func TestDamagedMarkIsNamedInsteadOfReleasedSegment(t *testing.T) {
	blamed := 0
	for slot := range int64(markSlots) {
		w := newTestLog(t, Options{})
		w.add(t, numbered(0, 30)...)
		w.sync(t)
		if freed, err := w.Release(w.Tail()); freed != 2 || err != nil {
			t.Fatal(freed, err)
		}
		w.disk.Kill()
		if err := w.disk.Corrupt(path(markName), slot*markSlotBytes+70, 1); err != nil {
			t.Fatal(err)
		}
		log, err := Open(w.disk, testDir, w.opts)
		if err == nil {
			log.closeFiles()
			continue // a different slot has the same content
		}
		blamed++
		damage := refused(t, w, markName)
		if damage.Offset != slot*markSlotBytes || !strings.Contains(damage.Error(), "may have been released") {
			t.Errorf("slot %d: %v", slot, damage)
		}
		if loss, err := AcceptLoss(w.disk, testDir); loss == nil || err != nil {
			t.Fatal(loss, err)
		}
		w.open(t)
		if got := replayed(t, w.Log); !slices.Equal(got, w.appended[len(w.appended)-6:]) {
			t.Errorf("slot %d: accepting the loss of a mark leaves %v", slot, got)
		}
	}
	if blamed != 1 {
		t.Errorf("%d of the slots are the only ones that say what was released, want 1", blamed)
	}
}
