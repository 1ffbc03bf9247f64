package wal

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/disk/disktest"
)

var (
	seedCount = flag.Int("wal.seeds", 3000, "how many seeds the model test runs")
	oneSeed   = flag.Uint64("wal.seed", 0, "run the model test with this seed alone")
)

// model is the sequential model of a log on a crashing disk: the appended
// records, and how many of them must survive.
type model struct {
	rng   *rand.Rand
	disk  *disktest.Crashable
	fs    disk.FS
	opts  Options
	now   time.Time
	log   *Log
	trace []string
	// length, if not 0, is the length of most payloads, so that records appended
	// after a crash start at the same offsets as before.
	length int

	records []modelRecord
	// synced is the number of records that must survive a power cut, and written
	// the number of records that must survive the end of the process.
	synced, written int
	// firstSure and firstMax bound the number of the oldest segment. They differ
	// after a failed Release.
	firstSure, firstMax uint64
	// faulty means that a fault is armed, so a call may fail.
	faulty bool
	met    counts
}

type modelRecord struct {
	pos     Position
	kind    byte
	payload []byte
}

// counts records which situations a run covered, so that a test can require
// them.
type counts struct {
	crashes, kills, closes, poisons, rolls, releases, recycled, lost, cuts int
}

func (c *counts) add(d counts) {
	c.crashes += d.crashes
	c.kills += d.kills
	c.closes += d.closes
	c.poisons += d.poisons
	c.rolls += d.rolls
	c.releases += d.releases
	c.recycled += d.recycled
	c.lost += d.lost
	c.cuts += d.cuts
}

func newModel(seed uint64, wrap func(disk.FS) disk.FS) *model {
	rng := rand.New(rand.NewPCG(seed, 1))
	d := disktest.NewCrashable(rng)
	w := &model{rng: rng, disk: d, fs: wrap(d), now: time.Unix(1, 0), firstSure: 1, firstMax: 1}
	if rng.IntN(3) == 0 {
		w.length = 1 + rng.IntN(600)
	}
	w.opts = Options{
		SegmentBytes:    int64(1+rng.IntN(4)) * 8192,
		RecycleSegments: rng.IntN(4) - 1,
		Now:             func() time.Time { return w.now },
		Rand:            rng.Uint64,
	}
	return w
}

func keepFS(fsys disk.FS) disk.FS { return fsys }

func (w *model) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *model) run(steps int) error {
	if err := w.reopen(); err != nil {
		return err
	}
	for range steps {
		if err := w.step(); err != nil {
			return err
		}
	}
	w.disk.Crash()
	w.crashed()
	return w.reopen()
}

func (w *model) step() error {
	w.now = w.now.Add(time.Duration(w.rng.IntN(400)) * time.Millisecond)
	switch n := w.rng.IntN(100); {
	case n < 55:
		return w.append()
	case n < 75:
		return w.sync()
	case n < 82:
		return w.flush()
	case n < 86:
		return w.after(w.log.SyncMark(), func() {})
	case n < 91:
		return w.release()
	case n < 94:
		w.fault()
		return nil
	case n < 97:
		w.disk.Crash()
		w.crashed()
		return w.reopen()
	case n < 99:
		w.disk.Kill()
		w.killed()
		return w.reopen()
	default:
		return w.close()
	}
}

func (w *model) append() error {
	kind := byte(2 + w.rng.IntN(250))
	payload := w.payload()
	before := len(w.records)
	pos, err := w.log.Append(kind, payload[:len(payload)/3], payload[len(payload)/3:])
	var large *RecordTooLargeError
	switch {
	case errors.As(err, &large):
		if int64(len(payload)) < large.Limit {
			return fmt.Errorf("%d bytes refused at a limit of %d", len(payload), large.Limit)
		}
		w.records = w.records[:before]
		return nil
	case err != nil:
		return w.failed(err)
	}
	w.records = append(w.records, modelRecord{pos, kind, payload})
	return nil
}

// payload returns payloads with lengths around the boundaries, and with
// contents that look like an empty log or like records of the log itself.
func (w *model) payload() []byte {
	var length int
	switch n := w.rng.IntN(20); {
	case w.length > 0 && n > 0:
		length = w.length
	case n < 2:
		length = w.rng.IntN(18)
	case n < 4:
		length = int(w.opts.SegmentBytes)/2 - w.rng.IntN(300)
	default:
		length = w.rng.IntN(700)
	}
	b := make([]byte, length)
	switch w.rng.IntN(4) {
	case 0:
	case 1:
		if len(w.log.pending) > 0 {
			copy(b, w.log.pending[0].buf)
		}
	default:
		for i := range b {
			b[i] = byte(w.rng.Uint32())
		}
	}
	return b
}

// checkpoint is the callback passed to SetCheckpoint. The model knows the
// offset of the record that follows.
func (w *model) checkpoint(dst []byte) []byte {
	payload := fmt.Appendf(dst, "checkpoint behind %d records", len(w.records))
	w.records = append(w.records, modelRecord{Position{w.log.Tail().Segment + 1, headerBytes}, CheckpointKind, payload})
	w.met.rolls++
	return payload
}

func (w *model) sync() error {
	pos, err := w.log.Sync()
	return w.after(err, func() {
		w.synced, w.written = len(w.records), len(w.records)
		if pos != w.log.Tail() {
			panic("sync did not reach the tail")
		}
	})
}

func (w *model) flush() error {
	return w.after(w.log.Flush(), func() { w.written = len(w.records) })
}

func (w *model) release() error {
	segments := w.log.Segments()
	before := Position{segments[w.rng.IntN(len(segments))].Number + uint64(w.rng.IntN(2)), 0}
	w.firstMax = max(w.firstMax, min(before.Segment, segments[len(segments)-1].Number))
	freed, err := w.log.Release(before)
	w.met.releases += freed
	if err != nil && !errors.Is(err, ErrPoisoned) {
		// A file could not be removed. The log could continue, but the process ends
		// anyway.
		w.log = nil
	}
	return w.after(err, func() { w.firstSure = w.log.Segments()[0].Number })
}

func (w *model) fault() {
	w.faulty = true
	switch w.rng.IntN(5) {
	case 0, 1:
		n := w.rng.IntN(25)
		w.note("cut after %d", n)
		w.disk.CutAfter(n)
		w.met.cuts++
	case 2:
		n := 1 + w.rng.IntN(8)
		w.note("fail sync %d", n)
		w.disk.FailSync(n, syscall.EIO)
	case 3:
		n := 1 + w.rng.IntN(8)
		w.note("fail write %d", n)
		w.disk.FailWrite(n, w.rng.IntN(5000), syscall.EIO)
	default:
		w.note("limit space")
		free, _ := w.disk.FreeBytes("")
		w.disk.LimitSpace(1<<40 - free)
	}
}

func (w *model) close() error {
	w.met.closes++
	if err := w.log.Close(); err != nil {
		return w.failed(err)
	}
	w.log = nil
	w.note("closed")
	w.synced, w.written = len(w.records), len(w.records)
	if w.rng.IntN(2) == 0 {
		w.disk.Crash()
		w.met.crashes++
	}
	return w.reopen()
}

// after calls success if err is nil. Otherwise it ends the failed process and
// starts the next process.
func (w *model) after(err error, success func()) error {
	if err != nil {
		return w.failed(err)
	}
	success()
	return nil
}

// failed ends a process whose log failed: its writes survive, unless the power
// fails too.
func (w *model) failed(err error) error {
	w.note("failed: %v", err)
	if !w.faulty {
		return fmt.Errorf("failure without a fault: %w", err)
	}
	if w.log != nil {
		w.met.poisons++
		if !errors.Is(err, ErrPoisoned) {
			return fmt.Errorf("failure without poison: %w", err)
		}
		if _, again := w.log.Append(9, nil); !errors.Is(again, ErrPoisoned) && !errors.Is(again, ErrClosed) {
			return fmt.Errorf("append after a failure: %w", again)
		}
		if _, again := w.log.Sync(); !errors.Is(again, ErrPoisoned) && !errors.Is(again, ErrClosed) {
			return fmt.Errorf("sync after a failure: %w", again)
		}
	}
	if w.rng.IntN(2) == 0 && !errors.Is(err, disktest.ErrPowerCut) {
		w.disk.Kill()
		w.killed()
	} else {
		w.disk.Crash()
		w.crashed()
	}
	return w.reopen()
}

func (w *model) crashed() {
	w.note("crash")
	w.met.crashes++
	w.written = w.synced
}

func (w *model) killed() {
	w.note("kill")
	w.met.kills++
}

// reopen starts the next process, sometimes cutting the power during recovery.
func (w *model) reopen() error {
	w.disk.LimitSpace(-1)
	w.disk.FailSync(0, nil)
	w.disk.FailWrite(0, 0, nil)
	w.faulty = w.rng.IntN(8) == 0
	if w.faulty {
		w.disk.CutAfter(w.rng.IntN(10))
	} else {
		w.disk.CutAfter(1 << 30)
	}
	if w.log != nil {
		w.met.recycled += int(w.log.Stats().SegmentsRecycled)
	}
	w.log = nil
	if err := w.verify(); err != nil {
		return err
	}
	log, err := Open(w.fs, "data/wal", w.opts)
	if err != nil {
		var damage *DamageError
		if errors.As(err, &damage) {
			return fmt.Errorf("no damage was done: %w", err)
		}
		return w.failed(err)
	}
	w.log = log
	w.note("opened, tail %v", log.Tail())
	if err := w.compare(); err != nil {
		return err
	}
	log.SetCheckpoint(w.checkpoint)
	return nil
}

// verify checks the log with Verify, which must not report the effects of a
// crash as damage.
func (w *model) verify() error {
	if w.rng.IntN(3) > 0 {
		return nil
	}
	report, err := verify(w.fs, "data/wal")
	if errors.Is(err, fs.ErrNotExist) && len(w.records) == 0 {
		return nil
	}
	if err != nil || report.IsDamaged() {
		return fmt.Errorf("verify after a crash: %+v, %w", report.Findings, err)
	}
	return nil
}

// compare replays the log, compares it with the model and adopts the result.
func (w *model) compare() error {
	first := w.log.Segments()[0].Number
	if first < w.firstSure || first > w.firstMax {
		return fmt.Errorf("oldest segment is %d, want %d to %d", first, w.firstSure, w.firstMax)
	}
	w.firstSure, w.firstMax = first, first
	at := 0
	for at < len(w.records) && w.records[at].pos.Segment < first {
		at++
	}
	start := at
	err := w.log.Replay(func(pos Position, kind byte, payload []byte) error {
		if at == len(w.records) {
			return fmt.Errorf("record at %v was never appended", pos)
		}
		want := w.records[at]
		if pos != want.pos || kind != want.kind || !bytes.Equal(payload, want.payload) {
			return fmt.Errorf("record %d is kind %d at %v with %d bytes, want kind %d at %v with %d bytes",
				at, kind, pos, len(payload), want.kind, want.pos, len(want.payload))
		}
		at++
		return nil
	})
	if err != nil {
		return err
	}
	if at < max(w.synced, w.written) {
		return fmt.Errorf("%w: %d records replayed, %d were synced and %d written", errLost, at, w.synced, w.written)
	}
	if first > 1 && (start == at || w.records[start].kind != CheckpointKind) {
		return fmt.Errorf("the oldest segment %d does not begin with a checkpoint", first)
	}
	w.met.lost += len(w.records) - at
	w.records = w.records[:at]
	w.synced, w.written = at, at
	return nil
}

var errLost = errors.New("synced records lost")

func (w *model) report(out io.Writer) {
	for _, line := range w.trace {
		fmt.Fprintln(out, line)
	}
	fmt.Fprint(out, w.disk)
}

// TestLogMatchesModelAcrossCrashes compares the log with its model: synced records are replayed
// completely and in order, a prefix of later records may follow, and nothing
// else.
func TestLogMatchesModelAcrossCrashes(t *testing.T) {
	seeds := *seedCount
	if testing.Short() {
		seeds = min(seeds, 300)
	}
	first := uint64(1)
	if *oneSeed != 0 {
		first, seeds = *oneSeed, 1
	}
	var met counts
	for seed := first; seed < first+uint64(seeds); seed++ {
		w := newModel(seed, keepFS)
		if err := w.run(150); err != nil {
			w.report(t.Output())
			t.Fatalf("%v (replay it with -wal.seed=%d)", err, seed)
		}
		met.add(w.met)
	}
	t.Logf("%d seeds: %+v", seeds, met)
	if seeds >= 100 && (met.crashes == 0 || met.kills == 0 || met.closes == 0 || met.poisons == 0 || met.rolls == 0 ||
		met.releases == 0 || met.recycled == 0 || met.lost == 0 || met.cuts == 0) {
		t.Errorf("the seeds did not meet every event: %+v", met)
	}
}

// unsyncedFS pretends to sync.
type unsyncedFS struct{ disk.FS }

type unsyncedFile struct{ disk.File }

func (unsyncedFile) Sync() error { return nil }

func (u unsyncedFS) Create(name string, size int64) (disk.File, error) {
	f, err := u.FS.Create(name, size)
	return unsyncedFile{f}, err
}

func (u unsyncedFS) OpenFile(name string, access disk.Access) (disk.File, error) {
	f, err := u.FS.OpenFile(name, access)
	return unsyncedFile{f}, err
}

// TestModelDetectsMissingSync shows that the model test can fail: it fails on a
// disk that does not sync.
func TestModelDetectsMissingSync(t *testing.T) {
	failed := 0
	for seed := range uint64(40) {
		w := newModel(seed, func(fsys disk.FS) disk.FS { return unsyncedFS{fsys} })
		if w.run(150) != nil {
			failed++
		}
	}
	if failed < 38 {
		t.Errorf("%d of 40 seeds noticed that nothing was synced", failed)
	}
}
