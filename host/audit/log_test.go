package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// started returns a running log. stop or the end of the test ends it.
func started(t *testing.T, o Options) (l *Log, stop func()) {
	t.Helper()
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go l.Run(ctx)
	stop = func() { cancel(); <-l.closed }
	t.Cleanup(stop)
	return l, stop
}

// written opens a log, writes n lines and closes it.
func written(t *testing.T, o Options, n int) {
	t.Helper()
	l, stop := started(t, o)
	defer stop()
	for i := range n {
		e := Entry{Stage: stageComplete, Method: "/a.B/C", ID: fmt.Sprint("e", i), Code: "ok"}
		if i%2 == 0 {
			l.Add(e)
		} else if err := l.Write(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

func logPath(t *testing.T) string { return filepath.Join(t.TempDir(), "audit", "audit.log") }

func verified(t *testing.T, path string, lines uint64) Report {
	t.Helper()
	r, err := Verify(path, "", "")
	if err != nil || r.Lines != lines {
		t.Fatalf("%+v, %v; want %d lines", r, err, lines)
	}
	return r
}

// A log continues the chain of an earlier process, also across rotated
// files, and only its owner can read it.
func TestLogContinuesChainOfEarlierStart(t *testing.T) {
	o := Options{Path: logPath(t), Node: "n1", MaxBytes: 2000, Keep: 50}
	var heads []string
	for n := range 5 {
		written(t, o, 20)
		heads = append(heads, verified(t, o.Path, uint64(n+1)*20).Head)
	}
	if r := verified(t, o.Path, 100); r.Files < 5 || r.From != "" || r.Lost != 0 || r.Torn != 0 {
		t.Errorf("%+v", r)
	}
	for _, h := range heads {
		if _, err := Verify(o.Path, h, ""); err != nil {
			t.Errorf("head %s: %v", h, err)
		}
	}
	info, err := os.Stat(o.Path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() > o.MaxBytes {
		t.Errorf("%v, %v", info, err)
	}
	o.Keep = 3
	written(t, o, 20)
	if err := os.Remove(rotatedName(o.Path, 4)); err != nil { // left over from Keep: 50
		t.Fatal(err)
	}
	if r, err := Verify(o.Path, "", ""); err != nil || r.Files != 4 || r.From == "" {
		t.Errorf("after rotation: %+v, %v", r, err)
	}
	if _, err := Verify(o.Path, heads[0], ""); err == nil {
		t.Error("a head that is gone is found")
	}
}

// Verify detects every change except the removal of whole lines at the end.
// Only a head that was stored elsewhere detects such a removal.
func TestVerifyDetectsChangedLines(t *testing.T) {
	path := logPath(t)
	written(t, Options{Path: path, Node: "n1"}, 30)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head := verified(t, path, 30).Head
	lines := bytes.SplitAfter(good, []byte{'\n'})[:30]
	join := func(l ...[]byte) []byte { return bytes.Join(l, nil) }
	for i := range 29 {
		for name, text := range map[string][]byte{
			"changed":   bytes.Replace(good, fmt.Appendf(nil, `"e%d"`, i), fmt.Appendf(nil, `"f%d"`, i), 1),
			"taken out": join(bytes.Join(lines[:i+1], nil), bytes.Join(lines[i+2:], nil)),
			"twice":     join(bytes.Join(lines[:i+1], nil), bytes.Join(lines[i:], nil)),
			"no line":   join(bytes.Join(lines[:i], nil), []byte("hello\n"), bytes.Join(lines[i+1:], nil)),
			"swapped":   join(bytes.Join(lines[:i], nil), lines[i+1], lines[i], bytes.Join(lines[i+2:], nil)),
		} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			var fault *Fault
			_, err := Verify(path, head, "")
			if !errors.As(err, &fault) {
				t.Errorf("line %d %s: %v", i, name, err)
			}
		}
	}
	if err := os.WriteFile(path, bytes.Join(lines[:20], nil), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(path, "", ""); err != nil {
		t.Errorf("cut at a line: %v", err)
	}
	if _, err := Verify(path, head, ""); err == nil {
		t.Error("a kept head does not find that the end was cut off")
	}
}

// Wherever a crash truncates the last line, the log continues and reports the
// torn line.
func TestTornLineIsReported(t *testing.T) {
	path := logPath(t)
	written(t, Options{Path: path, Node: "n1"}, 3)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := bytes.LastIndexByte(good[:len(good)-1], '\n') + 1
	for cut := last + 1; cut < len(good); cut++ {
		if err := os.WriteFile(path, good[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := Verify(path, "", ""); err != nil || r.Torn != 1 {
			t.Fatalf("cut at %d: %+v, %v", cut, r, err)
		}
		written(t, Options{Path: path, Node: "n1"}, 2)
		r, err := Verify(path, "", "")
		whole := cut == len(good)-1 // only its newline is missing
		if err != nil || r.Lines != 5 || (r.Torn == 0) != whole {
			t.Fatalf("cut at %d, then two lines: %+v, %v", cut, r, err)
		}
	}
}

// The next line contains the number of lost lines, and waiting callers get an
// error.
func TestLostLinesAreCounted(t *testing.T) {
	path, now := logPath(t), time.Now()
	// The clock stands still, so lines that no caller waits for don't open the
	// file again.
	l, stop := started(t, Options{Path: path, Node: "n1", Now: func() time.Time { return now }})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(l.Write(t.Context(), Entry{ID: "a"}))
	must(l.file.f.Close()) // Run is idle, because the write above has ended
	l.lose(3)
	if err := l.Write(t.Context(), Entry{ID: "b"}); err == nil {
		t.Error("a line is said to be on a disk that does not answer")
	}
	// The log tries to open the file again, but finds a directory in its place.
	must(os.Rename(path, path+".away"))
	must(os.Mkdir(path, 0o700))
	if err := l.Write(t.Context(), Entry{ID: "c"}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory in the file's place: %v", err)
	}
	l.Add(Entry{ID: "d"})
	must(os.Remove(path))
	must(os.Rename(path+".away", path))
	for l.Write(t.Context(), Entry{ID: "e"}) != nil { // in one batch with d, or after it
		t.Error("the disk answers again")
	}
	stop()
	if err := l.Write(t.Context(), Entry{}); !errors.Is(err, errClosed) {
		t.Errorf("after the end: %v", err)
	}
	r, err := Verify(path, "", "")
	if err != nil || r.Lines+r.Lost != 8 || r.Lost < 5 || r.Torn != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// If the log isn't written, the queue holds no more than its limit and callers
// continue.
func TestQueueIsBounded(t *testing.T) {
	l, err := Open(Options{Path: logPath(t), Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	for range maxQueued + 10 {
		l.Add(Entry{ID: "a"})
	}
	if err := l.Write(t.Context(), Entry{}); !errors.Is(err, errFull) {
		t.Errorf("a full queue: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Run(ctx)
	if r, err := Verify(l.opts.Path, "", ""); err != nil || r.Lines != maxQueued || r.Lost != 10 {
		t.Errorf("%+v, %v", r, err)
	}
}

// No string of a caller makes a line longer than maxLine.
func TestLinesAreBounded(t *testing.T) {
	path := logPath(t)
	l, stop := started(t, Options{Path: path, Node: "n1"})
	for _, text := range []string{strings.Repeat("\x01", 4096), strings.Repeat("<\u2028", 2048), strings.Repeat("é", 4096), "\xff\xfe" + strings.Repeat("\xff", 600)} {
		e := Entry{Stage: stageComplete, Principal: Principal{"jwt", text}, Address: text, Method: text, Type: text, ID: text, CommandID: text, Target: text, Result: text}
		if err := l.Write(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	verified(t, path, 4)
}

func TestOpenRejectsIrregularFile(t *testing.T) {
	for _, path := range []string{t.TempDir(), "/dev/null"} {
		if _, err := Open(Options{Path: path}); err == nil {
			t.Errorf("%s is taken", path)
		}
	}
}

// Only a bounded number of a caller's rejected calls get lines, whatever other
// callers do, and the caller's next line contains the number of calls that
// got none.
func TestLinesOfRejectedCallsAreBounded(t *testing.T) {
	var r refusals
	lines := func(caller string, n int, second int64) (out int, left uint64) {
		for range n {
			l, ok := r.take(refuser{identity: caller}, second)
			left += l
			if ok {
				out++
			}
		}
		return out, left
	}
	if n, left := lines("a", 1000, 1); n != maxRefusals || left != 0 {
		t.Errorf("%d lines, %d left", n, left)
	}
	if n, _ := lines("b", 5, 1); n != 5 {
		t.Errorf("%d lines of another", n)
	}
	if n, left := lines("a", 1, 2); n != 1 || left != 900 {
		t.Errorf("%d lines, %d left in the next second", n, left)
	}
	total := 0
	for i := range 3 * maxCallers {
		n, _ := lines(fmt.Sprint("c", i), 1, 3)
		total += n
	}
	if want := maxCallers - 1 + maxRefusals; total != want || len(r.lines) > maxCallers || len(r.left) > maxCallers {
		t.Errorf("%d lines, want %d; tables of %d and %d", total, want, len(r.lines), len(r.left))
	}
}

func BenchmarkAdd(b *testing.B) {
	l, err := Open(Options{Path: filepath.Join(b.TempDir(), "audit.log"), Node: "n1"})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	go l.Run(ctx)
	defer func() { cancel(); <-l.closed }()
	e := Entry{Stage: stageComplete, Principal: Principal{"token", "ann"}, Address: "127.0.0.1:4000", Method: "/hostd.entity.v1.EntityService/SendCommand", Verb: "invoke", Type: "order", ID: "o-1", CommandID: "c-1", Code: "ok"}
	b.ReportAllocs()
	for b.Loop() {
		for len(l.queue) > maxQueued-1 {
		}
		l.Add(e)
	}
}
