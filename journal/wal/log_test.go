package wal

import (
	"bytes"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostd/hostd/journal/disk/disktest"
)

func crcOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// TestTornTailStaysTruncated tears the unsynced end off a log, appends the same
// records again, and checks that no byte of the first attempt is ever read,
// however long the second attempt is.
func TestTornTailStaysTruncated(t *testing.T) {
	for kept := range 4 {
		w := newTestLog(t, Options{})
		w.add(t, "synced")
		w.sync(t)
		torn := w.add(t, "torn")
		w.add(t, "behind-1", "behind-2")
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := w.disk.Corrupt(path(segmentName(1)), torn.Offset+20, 1); err != nil {
			t.Fatal(err)
		}
		w.disk.Kill()
		w.open(t)
		if got := replayed(t, w.Log); !slices.Equal(got, []string{"synced"}) {
			t.Fatalf("after the tear: %v", got)
		}
		// An epoch record comes first. Append another record so that the next
		// record starts at the same offset as "behind-1" did.
		if _, err := w.Append(2, bytes.Repeat([]byte("f."), (1016-epochRecordBytes-recordHeaderBytes)/2)); err != nil {
			t.Fatal(err)
		}
		want := []string{"synced", "f"}
		w.add(t, numbered(0, kept)...)
		want = append(want, numbered(0, kept)...)
		w.sync(t)
		w.disk.Kill()
		w.open(t)
		if got := replayed(t, w.Log); !slices.Equal(got, want) {
			t.Errorf("after going on: %v, want %v", got, want)
		}
	}
}

// TestRecycledSegmentNeverYieldsOldRecords fills recycled files with fewer
// records than they contained before. A replay must return none of the earlier
// records.
func TestRecycledSegmentNeverYieldsOldRecords(t *testing.T) {
	w := newTestLog(t, Options{RecycleSegments: 3})
	for round := range 12 {
		w.add(t, numbered(round*100, round*100+30)...)
		w.sync(t)
		if _, err := w.Release(w.Tail()); err != nil {
			t.Fatal(err)
		}
		if got := len(w.Segments()); got != 1 {
			t.Fatalf("%d segments after the release", got)
		}
		w.disk.Kill()
		w.open(t)
		got := replayed(t, w.Log)
		if len(got) == 0 || !slices.Equal(got, w.appended[len(w.appended)-len(got):]) {
			t.Fatalf("round %d: %v", round, got)
		}
	}
	w.add(t, numbered(0, 30)...)
	w.sync(t)
	if w.Stats().SegmentsRecycled == 0 {
		t.Error("no segment was recycled")
	}
}

func TestReleaseKeepsFilesToRecycle(t *testing.T) {
	for _, test := range []struct{ recycle, want int }{{-1, 0}, {1, 1}, {0, 2}, {10, 4}} {
		w := newTestLog(t, Options{RecycleSegments: test.recycle})
		w.add(t, numbered(0, 55)...)
		w.sync(t)
		if freed, err := w.Release(Position{5, 0}); freed != 4 || err != nil {
			t.Fatalf("freed %d, %v", freed, err)
		}
		if freed, err := w.Release(Position{99, 0}); freed != 0 || err != nil {
			t.Errorf("freed %d of the active segment, %v", freed, err)
		}
		names, err := w.disk.List(testDir)
		if err != nil {
			t.Fatal(err)
		}
		free := slices.DeleteFunc(slices.Clone(names), func(s string) bool { return !strings.HasSuffix(s, freeSuffix) })
		if len(free) != test.want || len(names) != test.want+2 {
			t.Errorf("with %d to recycle: %v", test.recycle, names)
		}
	}
}

// TestReleaseUpToAPendingSegment releases the segments before a segment that
// exists only in memory. The last segment on disk is freed only after the new
// segment was synced.
func TestReleaseUpToAPendingSegment(t *testing.T) {
	w := newTestLog(t, Options{})
	w.SetCheckpoint(func(dst []byte) []byte { return append(dst, "checkpoint."...) })
	w.add(t, numbered(0, 10)...)
	w.sync(t)
	w.add(t, numbered(10, 20)...)
	if freed, err := w.Release(w.Tail()); freed != 0 || err != nil {
		t.Fatalf("freed %d, %v", freed, err)
	}
	w.sync(t)
	if freed, err := w.Release(w.Tail()); freed != 1 || err != nil {
		t.Fatalf("freed %d, %v", freed, err)
	}
	w.disk.Crash()
	w.open(t)
	if got := replayed(t, w.Log); len(got) == 0 || got[0] != "checkpoint" {
		t.Errorf("the log begins with %v", got)
	}
}

func TestFailedSyncPoisons(t *testing.T) {
	for _, op := range []string{"sync", "write"} {
		w := newTestLog(t, Options{})
		w.add(t, "good")
		w.sync(t)
		w.add(t, "bad")
		if op == "sync" {
			w.disk.FailSync(1, syscall.EIO)
		} else {
			w.disk.FailWrite(1, 10, syscall.EIO)
		}
		_, err := w.Sync()
		if !errors.Is(err, ErrPoisoned) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("%s: %v", op, err)
		}
		syncs := w.Stats().Syncs
		if _, err := w.Sync(); !errors.Is(err, ErrPoisoned) {
			t.Errorf("second sync: %v", err)
		}
		if _, err := w.Append(2, nil); !errors.Is(err, ErrPoisoned) {
			t.Errorf("append: %v", err)
		}
		if err := w.Flush(); !errors.Is(err, ErrPoisoned) {
			t.Errorf("flush: %v", err)
		}
		if _, err := w.Release(w.Tail()); !errors.Is(err, ErrPoisoned) {
			t.Errorf("release: %v", err)
		}
		if err := w.SyncMark(); !errors.Is(err, ErrPoisoned) {
			t.Errorf("sync mark: %v", err)
		}
		if err := w.Close(); !errors.Is(err, ErrPoisoned) {
			t.Errorf("close: %v", err)
		}
		if w.Stats().Syncs != syncs {
			t.Error("the sync was tried again")
		}
		// The operating system still returns the data that it failed to write. The
		// records that the next process accepts must survive a power cut from then
		// on.
		w.open(t)
		got := replayed(t, w.Log)
		w.disk.Crash()
		w.open(t)
		if again := replayed(t, w.Log); !slices.Equal(again, got) || got[0] != "good" {
			t.Errorf("%s: %v was replayed, and %v after a power cut", op, got, again)
		}
	}
}

func TestFullDiskPoisonsAndReopenRecovers(t *testing.T) {
	w := newTestLog(t, Options{})
	free, err := w.disk.FreeBytes(testDir)
	if err != nil {
		t.Fatal(err)
	}
	w.disk.LimitSpace(1<<40 - free + 20<<10) // space for one more segment
	synced := 0
	for range 60 {
		w.add(t, numbered(synced, synced+1)...)
		if _, err = w.Sync(); err != nil {
			break
		}
		synced++
	}
	if !errors.Is(err, ErrPoisoned) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("full disk: %v", err)
	}
	w.Close()
	w.open(t)
	if got := replayed(t, w.Log); len(got) < synced || !slices.Equal(got, w.appended[:len(got)]) {
		t.Errorf("%d records were synced, got %v", synced, got)
	}
	if freed, err := w.Release(w.Tail()); freed == 0 || err != nil {
		t.Errorf("release on a full disk: %d, %v", freed, err)
	}
	w.add(t, numbered(100, 110)...)
	w.sync(t)
}

func TestAppendBounds(t *testing.T) {
	w := newTestLog(t, Options{MaxRecordBytes: 10 << 10})
	var large *RecordTooLargeError
	for _, test := range []struct {
		bytes int
		ok    bool
	}{{0, true}, {1, true}, {10<<10 - 1, true}, {10 << 10, true}, {10<<10 + 1, false}} {
		_, err := w.Append(2, make([]byte, test.bytes))
		if test.ok && err != nil || !test.ok && !errors.As(err, &large) {
			t.Errorf("%d bytes: %v", test.bytes, err)
		}
	}
	if _, err := w.Append(0, nil); !errors.Is(err, ErrKind) {
		t.Errorf("kind 0: %v", err)
	}
	// A record that follows a checkpoint must be smaller to fit into the segment.
	w.SetCheckpoint(func(dst []byte) []byte { return append(dst, make([]byte, 4<<10)...) })
	w.add(t, numbered(0, 5)...)
	room := w.opts.SegmentBytes - headerBytes - recordBytes(4<<10) - recordHeaderBytes
	before := w.Tail()
	if _, err := w.Append(2, make([]byte, room+1)); !errors.As(err, &large) || large.Limit != room {
		t.Errorf("%d bytes behind the checkpoint: %v", room+1, err)
	}
	if w.Tail() != before {
		t.Errorf("a refused record moved the tail to %v", w.Tail())
	}
	if _, err := w.Append(2, make([]byte, room)); err != nil {
		t.Errorf("%d bytes behind the checkpoint: %v", room, err)
	}
	w.sync(t)
	w.disk.Kill()
	w.open(t)
	got := 0
	if err := w.Replay(func(_ Position, kind byte, _ []byte) error {
		if kind != CheckpointKind {
			got++
		}
		return nil
	}); err != nil || got != 10 {
		t.Errorf("%d records, %v", got, err)
	}
}

// TestFullSegmentIsNotAppendedTo opens a log whose last segment has no space
// for the record of a new epoch. No record may be lost.
func TestFullSegmentIsNotAppendedTo(t *testing.T) {
	for room := int64(0); room < 40; room += 8 {
		w := newTestLog(t, Options{SegmentBytes: 8192})
		w.sync(t)
		if _, err := w.Append(2, make([]byte, 8192-w.Tail().Offset-recordHeaderBytes-room)); err != nil {
			t.Fatal(err)
		}
		w.sync(t)
		w.disk.Kill()
		w.open(t)
		if _, err := w.Append(3, nil); err != nil {
			t.Fatal(err)
		}
		w.sync(t)
		w.disk.Crash()
		w.open(t)
		if got := len(replayed(t, w.Log)); got != 2 {
			t.Errorf("room of %d: %d records", room, got)
		}
	}
}

func TestSyncIsOneWriteAndOneSync(t *testing.T) {
	observed := 0
	w := newTestLog(t, Options{ObserveSync: func(time.Duration) { observed++ }})
	before := w.Stats()
	observed = 0
	w.add(t, numbered(0, 5)...)
	w.sync(t)
	w.sync(t)
	after := w.Stats()
	if after.Writes != before.Writes+1 || after.Syncs != before.Syncs+1 || observed != 1 {
		t.Errorf("%d writes, %d syncs, %d observed", after.Writes-before.Writes, after.Syncs-before.Syncs, observed)
	}
	if after.Records != 5 || after.PayloadBytes != 5000 {
		t.Errorf("counted %d records of %d bytes", after.Records, after.PayloadBytes)
	}
}

func TestReplayOrder(t *testing.T) {
	w := threeSegments(t)
	w.open(t)
	stop := errors.New("stop")
	if err := w.Replay(func(Position, byte, []byte) error { return stop }); err != stop {
		t.Errorf("error of the function: %v", err)
	}
	last := Position{}
	if err := w.Replay(func(pos Position, _ byte, _ []byte) error {
		if !last.Less(pos) || !pos.Less(w.Tail()) {
			t.Errorf("%v after %v, tail %v", pos, last, w.Tail())
		}
		last = pos
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	w.add(t, "x")
	if err := w.Replay(nil); !errors.Is(err, ErrReplayLate) {
		t.Errorf("replay after append: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Replay(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("replay after close: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// TestSegmentBytesMayChange opens a log with a different segment size than it
// was created with. All records must still be replayed.
func TestSegmentBytesMayChange(t *testing.T) {
	w := threeSegments(t)
	for _, size := range []int64{8 << 10, 64 << 10, 16 << 10} {
		w.opts.SegmentBytes = size
		w.open(t)
		w.add(t, numbered(200, 230)...)
		w.sync(t)
		if _, err := w.Release(Position{2, 0}); err != nil {
			t.Fatal(err)
		}
		w.disk.Kill()
	}
	w.open(t)
	if got := replayed(t, w.Log); !slices.Equal(got, w.appended[len(w.appended)-len(got):]) || len(got) < 90 {
		t.Errorf("%d records: %v", len(got), got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, bad := range []Options{
		{SegmentBytes: 4096}, {SegmentBytes: 10000}, {SegmentBytes: maxSegmentBytes + headerBytes},
		{SegmentBytes: -1}, {MaxRecordBytes: -1}, {MaxRecordBytes: 65 << 20},
	} {
		if _, err := Open(disktest.NewCrashable(nil), testDir, bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}
