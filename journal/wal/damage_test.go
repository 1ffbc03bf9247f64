package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/disk/disktest"
)

const testDir = "wal"

// testLog is a log on an in-memory disk with a stopped clock, and the records
// that were appended to it.
type testLog struct {
	*Log
	disk     *disktest.Crashable
	opts     Options
	now      time.Time
	appended []string
}

func newTestLog(t *testing.T, opts Options) *testLog {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	w := &testLog{disk: disktest.NewCrashable(rng), now: time.Unix(1, 0)}
	opts.Now = func() time.Time { return w.now }
	opts.Rand = rng.Uint64
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = 16 << 10
	}
	w.opts = opts
	w.open(t)
	return w
}

func (w *testLog) open(t *testing.T) {
	t.Helper()
	log, err := Open(w.disk, testDir, w.opts)
	if err != nil {
		t.Fatal(err)
	}
	w.Log = log
}

// add appends records of 1,000 bytes that start with the given words.
func (w *testLog) add(t *testing.T, words ...string) (last Position) {
	t.Helper()
	for _, word := range words {
		pos, err := w.Append(2, []byte(word), []byte(strings.Repeat(".", 1000-len(word))))
		if err != nil {
			t.Fatal(err)
		}
		w.appended = append(w.appended, word)
		last = pos
	}
	return last
}

func (w *testLog) sync(t *testing.T) {
	t.Helper()
	if _, err := w.Sync(); err != nil {
		t.Fatal(err)
	}
}

// replayed returns the first words of all records.
func replayed(t *testing.T, log *Log) []string {
	t.Helper()
	words := []string{}
	err := log.Replay(func(_ Position, _ byte, payload []byte) error {
		word, _, _ := strings.Cut(string(payload), ".")
		words = append(words, word)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return words
}

func numbered(from, to int) []string {
	var words []string
	for i := from; i < to; i++ {
		words = append(words, fmt.Sprintf("record-%d", i))
	}
	return words
}

// threeSegments returns a log of 30 records, 12 per segment, as left by a
// killed process: the mark is at its end.
func threeSegments(t *testing.T) *testLog {
	t.Helper()
	w := newTestLog(t, Options{})
	for _, word := range numbered(0, 30) {
		w.add(t, word)
		w.sync(t)
	}
	if got := len(w.Segments()); got != 3 {
		t.Fatalf("%d segments, want 3", got)
	}
	w.disk.Kill()
	return w
}

func path(name string) string { return filepath.Join(testDir, name) }

// replace overwrites a file with new bytes.
func replace(t *testing.T, d *disktest.Crashable, name string, change func([]byte) []byte) {
	t.Helper()
	data, err := disk.ReadFile(d, path(name))
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.WriteFileAtomic(d, path(name), change(data)); err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, w *testLog, file string) *DamageError {
	t.Helper()
	log, err := Open(w.disk, testDir, w.opts)
	if err == nil {
		t.Fatalf("opened with %d records", len(replayed(t, log)))
	}
	var damage *DamageError
	if !errors.As(err, &damage) {
		t.Fatalf("want damage, got %v", err)
	}
	if damage.File != file {
		t.Errorf("damage is said to be in %s, not in %s: %v", damage.File, file, err)
	}
	if !strings.Contains(err.Error(), "hostd recover --accept-loss") || !strings.Contains(err.Error(), file) {
		t.Errorf("the error does not help: %v", err)
	}
	report, err := verify(w.disk, testDir)
	if err != nil {
		t.Fatal(err)
	}
	if !report.IsDamaged() || !slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Damage && f.File == file }) {
		t.Errorf("verify does not find damage in %s: %+v", file, report.Findings)
	}
	return damage
}

// TestEveryFlippedByteIsDamage flips one bit in each byte of the segments
// before the mark. Open must report each flip as damage.
func TestEveryFlippedByteIsDamage(t *testing.T) {
	w := threeSegments(t)
	step := int64(1)
	if testing.Short() {
		step = 37
	}
	for _, s := range w.Segments() {
		name := segmentName(s.Number)
		for offset := int64(0); offset < s.End; offset += step {
			mask := byte(1) << (offset % 8)
			if err := w.disk.Corrupt(path(name), offset, mask); err != nil {
				t.Fatal(err)
			}
			_, err := Open(w.disk, testDir, w.opts)
			var damage *DamageError
			if !errors.As(err, &damage) || damage.File != name {
				t.Fatalf("bit flipped at %d of %s: %v", offset, name, err)
			}
			if err := w.disk.Corrupt(path(name), offset, mask); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.open(t)
	if got := replayed(t, w.Log); !slices.Equal(got, w.appended) {
		t.Errorf("after undoing all flips: %v", got)
	}
}

func TestOpenReportsDamage(t *testing.T) {
	first, second, third := segmentName(1), segmentName(2), segmentName(3)
	cut := func(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:len(b)-n] } }
	zero := func(from int) func([]byte) []byte {
		return func(b []byte) []byte { clear(b[from : from+4096]); return b }
	}
	tests := []struct {
		name, file string
		damage     func(t *testing.T, w *testLog)
	}{
		{"zero page in the first segment", first, func(t *testing.T, w *testLog) { replace(t, w.disk, first, zero(8192)) }},
		{"zero page in the last segment", third, func(t *testing.T, w *testLog) { replace(t, w.disk, third, zero(4096)) }},
		{"zero header page", second, func(t *testing.T, w *testLog) { replace(t, w.disk, second, zero(0)) }},
		{"shortened", second, func(t *testing.T, w *testLog) { replace(t, w.disk, second, cut(512)) }},
		{"shortened last", third, func(t *testing.T, w *testLog) { replace(t, w.disk, third, cut(1)) }},
		{"shortened to nothing", third, func(t *testing.T, w *testLog) {
			replace(t, w.disk, third, func([]byte) []byte { return nil })
		}},
		{"lengthened", first, func(t *testing.T, w *testLog) {
			replace(t, w.disk, first, func(b []byte) []byte { return append(b, 0) })
		}},
		{"first missing", first, func(t *testing.T, w *testLog) { remove(t, w, first) }},
		{"middle missing", second, func(t *testing.T, w *testLog) { remove(t, w, second) }},
		{"last missing", third, func(t *testing.T, w *testLog) { remove(t, w, third) }},
		{"all missing", first, func(t *testing.T, w *testLog) { remove(t, w, first, second, third) }},
		{"two exchanged", first, func(t *testing.T, w *testLog) {
			if err := errors.Join(w.disk.Rename(path(first), path("x")), w.disk.Rename(path(second), path(first)),
				w.disk.Rename(path("x"), path(second))); err != nil {
				t.Fatal(err)
			}
		}},
		{"segment of another log", third, func(t *testing.T, w *testLog) {
			replace(t, w.disk, third, func(b []byte) []byte {
				h, _ := decodeSegmentHeader(b)
				h.id[3]++
				h.encode(b)
				return b
			})
		}},
		{"segment of another format", second, func(t *testing.T, w *testLog) {
			replace(t, w.disk, second, func(b []byte) []byte { b[8] = 9; return reseal(b) })
		}},
		{"earlier copy of the last segment", third, func(t *testing.T, w *testLog) {
			replace(t, w.disk, third, func(b []byte) []byte { clear(b[4096+2*1016:]); return b })
		}},
		{"unreadable sector", second, func(t *testing.T, w *testLog) {
			if err := w.disk.FailRead(path(second), 9000, 512); err != nil {
				t.Fatal(err)
			}
		}},
		{"mark missing", markName, func(t *testing.T, w *testLog) { remove(t, w, markName) }},
		{"mark shortened", markName, func(t *testing.T, w *testLog) { replace(t, w.disk, markName, cut(4096)) }},
		{"mark zeroed", markName, func(t *testing.T, w *testLog) {
			replace(t, w.disk, markName, func(b []byte) []byte { clear(b); return b })
		}},
		{"mark flipped in each slot", markName, func(t *testing.T, w *testLog) {
			for slot := range int64(markSlots) {
				if err := w.disk.Corrupt(path(markName), slot*markSlotBytes+40, 4); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"mark unreadable", markName, func(t *testing.T, w *testLog) {
			if err := w.disk.FailRead(path(markName), 0, 1); err != nil {
				t.Fatal(err)
			}
		}},
		{"slots of two logs", markName, func(t *testing.T, w *testLog) {
			replace(t, w.disk, markName, func(b []byte) []byte {
				m, id, _ := decodeMark(b)
				id[0]++
				m.encode(b, id)
				return b
			})
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := threeSegments(t)
			test.damage(t, w)
			before := contents(t, w.disk)
			refused(t, w, test.file)
			if after := contents(t, w.disk); before != after {
				t.Error("a refused log was changed")
			}
			acceptLoss(t, w)
		})
	}
}

func remove(t *testing.T, w *testLog, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := w.disk.Remove(path(name)); err != nil {
			t.Fatal(err)
		}
	}
}

func reseal(page []byte) []byte {
	h := page[:headerCRCOffset]
	littleEndian.PutUint32(page[headerCRCOffset:], crcOf(h))
	return page
}

// contents returns every readable byte of the log's directory.
func contents(t *testing.T, d *disktest.Crashable) string {
	t.Helper()
	names, err := d.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range names {
		data, _ := disk.ReadFile(d, path(name))
		fmt.Fprintf(&b, "%s %d %x\n", name, len(data), data)
	}
	return b.String()
}

// acceptLoss checks that a damaged log can be truncated to a prefix that works
// as a log.
func acceptLoss(t *testing.T, w *testLog) {
	t.Helper()
	loss, err := AcceptLoss(w.disk, testDir)
	if err != nil {
		t.Fatal(err)
	}
	if loss == nil {
		t.Fatal("no loss accepted")
	}
	w.open(t)
	got := replayed(t, w.Log)
	if len(got) > len(w.appended) || !slices.Equal(got, w.appended[:len(got)]) {
		t.Fatalf("what was kept is no prefix: %v", got)
	}
	w.appended = got
	w.add(t, numbered(100, 120)...)
	w.sync(t)
	w.disk.Kill()
	w.open(t)
	if got := replayed(t, w.Log); !slices.Equal(got, w.appended) {
		t.Errorf("after going on: %v, want %v", got, w.appended)
	}
	if loss, err := AcceptLoss(w.disk, testDir); loss != nil || err != nil {
		t.Errorf("a second loss in a whole log: %+v, %v", loss, err)
	}
}

// TestAcceptLossSurvivesCrashes cuts the power during each operation of
// AcceptLoss, and then repeats AcceptLoss, which must succeed.
func TestAcceptLossSurvivesCrashes(t *testing.T) {
	for n := range 120 {
		w := threeSegments(t)
		if err := w.disk.Corrupt(path(segmentName(2)), 9000, 1); err != nil {
			t.Fatal(err)
		}
		for range n {
			w.opts.Rand() // makes the crash different for each n, because the disk uses the same generator
		}
		w.disk.CutAfter(n % 24)
		_, err := AcceptLoss(w.disk, testDir)
		if err != nil && !errors.Is(err, disktest.ErrPowerCut) {
			t.Fatal(err)
		}
		w.disk.Crash()
		if _, err := AcceptLoss(w.disk, testDir); err != nil {
			t.Fatal(err)
		}
		w.open(t)
		if got := replayed(t, w.Log); !slices.Equal(got, numbered(0, 16)) {
			t.Fatalf("cut at operation %d: %v", n%24, got)
		}
	}
}

// TestTruncatedRecordsAreNeverReadAgain accepts a loss before an epoch record. The log then
// reuses the epoch of the lost records, and must not read them.
func TestTruncatedRecordsAreNeverReadAgain(t *testing.T) {
	w := newTestLog(t, Options{})
	w.add(t, "kept")
	lost := w.add(t, "lost")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.open(t)
	w.add(t, "lost too", "and this")
	w.sync(t)
	w.disk.Kill()
	if err := w.disk.Corrupt(path(segmentName(1)), lost.Offset+50, 1); err != nil {
		t.Fatal(err)
	}
	loss, err := AcceptLoss(w.disk, testDir)
	if err != nil || loss == nil || loss.Kept != lost || len(loss.SetAside) != 1 {
		t.Fatalf("%+v, %v", loss, err)
	}
	w.open(t)
	w.add(t, "new") // as long as the lost record, so that the next record starts at the same offset as "lost too" did
	w.sync(t)
	w.disk.Kill()
	w.open(t)
	if got := replayed(t, w.Log); !slices.Equal(got, []string{"kept", "new"}) {
		t.Errorf("got %v", got)
	}
}

// TestVerifyReportsEveryDamage damages a log in several places at once. Verify
// must report each place and write nothing.
func TestVerifyReportsEveryDamage(t *testing.T) {
	w := threeSegments(t)
	whole, err := verify(w.disk, testDir)
	if err != nil || len(whole.Findings) != 0 || whole.Records != 30 || whole.Bytes != 30000 || len(whole.Segments) != 3 ||
		whole.Mark != whole.Tail || whole.ID != w.ID() {
		t.Fatalf("a whole log: %+v, %v", whole, err)
	}
	at := func(record int) int64 { return headerBytes + int64(record)*1016 }
	for _, place := range []struct {
		segment uint64
		offset  int64
	}{{1, at(2) + 500}, {1, at(5) + 8}, {1, at(9) + 700}, {2, 100}, {3, at(1) + 50}, {3, at(3) + 50}} {
		if err := w.disk.Corrupt(path(segmentName(place.segment)), place.offset, 1); err != nil {
			t.Fatal(err)
		}
	}
	before := contents(t, w.disk)
	report, err := verify(w.disk, testDir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range report.Findings {
		if f.Damage {
			got = append(got, fmt.Sprintf("%s at %d", f.File, f.Offset))
		}
	}
	if contents(t, w.disk) != before {
		t.Error("verify wrote something")
	}
	expect := []string{
		fmt.Sprintf("%s at %d", segmentName(2), 0),
		fmt.Sprintf("%s at %d", segmentName(1), at(2)),
		fmt.Sprintf("%s at %d", segmentName(1), at(5)),
		fmt.Sprintf("%s at %d", segmentName(1), at(9)),
		fmt.Sprintf("%s at %d", segmentName(3), at(1)),
		fmt.Sprintf("%s at %d", segmentName(3), at(3)),
	}
	if !slices.Equal(got, expect) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(expect, "\n"))
	}
}
