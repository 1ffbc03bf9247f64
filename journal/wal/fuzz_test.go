package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/disk/disktest"
)

// goldenDisk is an in-memory disk with the files of testdata.
func goldenDisk(t testing.TB) (d *disktest.Crashable, names []string) {
	t.Helper()
	d = disktest.NewCrashable(rand.New(rand.NewPCG(1, 2)))
	if err := d.MkdirAll(testDir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(goldenDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(goldenDir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := disk.WriteFileAtomic(d, path(e.Name()), data); err != nil {
			t.Fatal(err)
		}
		names = append(names, e.Name())
	}
	return d, names
}

// FuzzDamagedLog changes bytes of a valid log. Four bytes of input select each
// change: the file, the position and the value. The log must either be rejected
// as damaged, or return only appended records and then work.
func FuzzDamagedLog(f *testing.F) {
	listing, err := os.ReadFile("testdata/v1.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{0, 0, 40, 1})
	f.Add([]byte{1, 0x10, 0, 1, 1, 0x10, 8, 0xff})
	f.Add([]byte{2, 0x12, 4, 0x80, 0, 0, 76, 3})
	f.Fuzz(func(t *testing.T, edits []byte) {
		d, names := goldenDisk(t)
		for ; len(edits) >= 4; edits = edits[4:] {
			name := path(names[int(edits[0])%len(names)])
			info, err := d.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			offset := (int64(edits[1])<<8 | int64(edits[2])) % info.Size
			if err := d.Corrupt(name, offset, edits[3]); err != nil {
				t.Fatal(err)
			}
		}
		checkDamaged(t, d, func(line string) bool { return strings.Contains(string(listing), line) })
	})
}

// FuzzSegmentBytes puts arbitrary bytes in place of records, after a valid
// header and a mark that lags.
func FuzzSegmentBytes(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 64))
	c := newCoder(LogID{}, 1, 1)
	b, _ := c.appendRecord(nil, headerBytes, 0, epochKind, []byte{2, 0, 0, 0, 0, 0, 0, 0})
	f.Add(b)
	b, _ = c.appendRecord(b[:0], headerBytes, 0, 9, []byte("record"))
	f.Add(append(b, 1))
	f.Fuzz(func(t *testing.T, body []byte) {
		d := disktest.NewCrashable(rand.New(rand.NewPCG(1, 2)))
		if err := d.MkdirAll(testDir); err != nil {
			t.Fatal(err)
		}
		if err := createMark(d, path(markName), LogID{}, mark{sequence: 1, first: 1}); err != nil {
			t.Fatal(err)
		}
		size := (headerBytes + int64(len(body)) + headerBytes) &^ (headerBytes - 1)
		segment := make([]byte, size)
		segmentHeader{number: 1, epoch: 1, size: size}.encode(segment)
		copy(segment[headerBytes:], body)
		if err := disk.WriteFileAtomic(d, path(segmentName(1)), segment); err != nil {
			t.Fatal(err)
		}
		checkDamaged(t, d, func(string) bool { return true })
	})
}

// FuzzHeaderAndMark decodes arbitrary bytes as a segment header and as a mark.
func FuzzHeaderAndMark(f *testing.F) {
	page := make([]byte, headerBytes)
	segmentHeader{number: 1, epoch: 1, size: 8192}.encode(page)
	f.Add(page)
	mark{sequence: 1, position: Position{1, 4096}}.encode(page, LogID{1})
	f.Add(page)
	f.Fuzz(func(t *testing.T, data []byte) {
		page := make([]byte, headerBytes)
		copy(page, data)
		if h, reason := decodeSegmentHeader(page); reason == "" {
			again := make([]byte, headerBytes)
			h.encode(again)
			if _, reason := decodeSegmentHeader(again); reason != "" {
				t.Errorf("%+v: %s", h, reason)
			}
		}
		if m, id, reason := decodeMark(page); reason == "" {
			m.encode(page, id)
			if again, _, reason := decodeMark(page); reason != "" || again != m {
				t.Errorf("%+v: %s", m, reason)
			}
		}
	})
}

// checkDamaged opens a log with possibly wrong bytes and compares its records
// with known.
func checkDamaged(t *testing.T, d *disktest.Crashable, known func(line string) bool) {
	t.Helper()
	report, err := verify(d, testDir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := Open(d, testDir, Options{SegmentBytes: 8192})
	if err != nil {
		var damage *DamageError
		if !errors.As(err, &damage) || damage.File == "" || damage.Hint == "" {
			t.Fatalf("refused without saying what is damaged: %v", err)
		}
		if !report.IsDamaged() {
			t.Fatalf("verify found nothing, and the log is refused: %v", err)
		}
		if _, err := AcceptLoss(d, testDir); err != nil {
			t.Fatal(err)
		}
		if log, err = Open(d, testDir, Options{SegmentBytes: 8192}); err != nil {
			t.Fatalf("after the loss was accepted: %v", err)
		}
	} else if report.IsDamaged() {
		t.Fatalf("verify found %+v, and the log was opened", report.Findings)
	}
	records := 0
	if err := log.Replay(func(pos Position, kind byte, payload []byte) error {
		records++
		if line := fmt.Sprintf("%v kind %d, %d bytes, %.24q\n", pos, kind, len(payload), payload); !known(line) {
			t.Fatalf("never appended: %s", line)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(77, []byte("more")); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Sync(); err != nil {
		t.Fatal(err)
	}
	d.Crash()
	if log, err = Open(d, testDir, Options{SegmentBytes: 8192}); err != nil {
		t.Fatal(err)
	}
	again, last := 0, byte(0)
	if err := log.Replay(func(_ Position, kind byte, _ []byte) error { again++; last = kind; return nil }); err != nil {
		t.Fatal(err)
	}
	if again != records+1 || last != 77 {
		t.Errorf("%d records of %d, the last of kind %d", again, records+1, last)
	}
}
