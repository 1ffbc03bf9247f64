package wal

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/disk/disktest"
)

var update = flag.Bool("rewrite", false, "write testdata anew with the format of this release")

const goldenDir = "testdata/v1"

// goldenLog writes a small log that uses the whole format: a sealed and a
// recycled segment, a checkpoint, an epoch record, payloads of every padding, a
// torn tail, and a mark whose running slot is newer than the synced slots.
func goldenLog(t *testing.T) *disktest.Crashable {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	d := disktest.NewCrashable(rng)
	now := time.Unix(1_700_000_000, 0)
	opts := Options{
		SegmentBytes:   8192,
		MaxRecordBytes: 8192,
		Now:            func() time.Time { return now },
		Rand:           rand.New(rand.NewPCG(2, 2)).Uint64,
	}
	var log *Log
	open := func() {
		var err error
		if log, err = Open(d, testDir, opts); err != nil {
			t.Fatal(err)
		}
		log.SetCheckpoint(func(dst []byte) []byte { return fmt.Appendf(dst, "checkpoint %d", log.Tail().Segment) })
	}
	add := func(kind byte, payload string) {
		if _, err := log.Append(kind, []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	sync := func() {
		if _, err := log.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	open()
	for i := range 10 {
		add(byte(2+i), strings.Repeat(string(rune('a'+i)), 1000+i))
		sync()
	}
	if _, err := log.Release(Position{3, 0}); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		add(200, strings.Repeat(string(rune('k'+i)), 900+i))
	}
	sync()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	open()
	now = now.Add(100 * time.Millisecond)
	add(255, "last")
	add(3, "")
	sync()
	add(4, "written and not synced")
	tail := log.Tail()
	add(5, "torn")
	if err := log.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := d.Corrupt(path(segmentName(tail.Segment)), tail.Offset+recordHeaderBytes, 0xff); err != nil {
		t.Fatal(err)
	}
	d.Kill()
	return d
}

// listRecords writes one line for each record of the log.
func listRecords(t *testing.T, fsys disk.FS, dir string) string {
	t.Helper()
	log, err := Open(fsys, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.closeFiles()
	var b strings.Builder
	err = log.Replay(func(pos Position, kind byte, payload []byte) error {
		_, err := fmt.Fprintf(&b, "%v kind %d, %d bytes, %.24q\n", pos, kind, len(payload), payload)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestGoldenBytes pins the format: this release writes exactly the bytes in
// testdata.
func TestGoldenBytes(t *testing.T) {
	d := goldenLog(t)
	names, err := d.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.MkdirAll(goldenDir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		got, err := disk.ReadFile(d, path(name))
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join(goldenDir, name)
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from what was released: a new format needs a new version number", name)
		}
	}
	entries, err := os.ReadDir(goldenDir)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("testdata/v1.txt", []byte(listRecords(t, d, testDir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if len(entries) != len(names) {
		t.Errorf("testdata has %d files, the log %d", len(entries), len(names))
	}
}

// TestGoldenLogIsRead copies the files of testdata to a real directory. They
// must verify, and contain the expected records.
func TestGoldenLogIsRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(goldenDir)); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/v1.txt")
	if err != nil {
		t.Fatal(err)
	}
	report, err := verify(disk.OS{}, dir)
	if err != nil || report.IsDamaged() {
		t.Errorf("verify: %+v, %v", report, err)
	}
	if lines := strings.Count(string(want), "\n"); int(report.Records) != lines {
		t.Errorf("verify counts %d records of %d", report.Records, lines)
	}
	if got := listRecords(t, disk.OS{}, dir); got != string(want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
