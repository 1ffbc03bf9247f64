package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// hours is a clock that the test moves.
type hours struct{ ns atomic.Int64 }

func newHours() *hours {
	h := &hours{}
	h.ns.Store(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return h
}

func (h *hours) now() time.Time          { return time.Unix(0, h.ns.Load()).UTC() }
func (h *hours) advance(d time.Duration) { h.ns.Add(int64(d)) }

func newSigner(t *testing.T) *Signer {
	t.Helper()
	s, err := OpenSigner(filepath.Join(t.TempDir(), "audit", "key"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// signedLog writes a log with two processes, one after the other. Each
// writes 5 lines, 40 minutes apart.
func signedLog(t *testing.T, s *Signer) (path string, lines [][]byte) {
	t.Helper()
	path, clock := logPath(t), newHours()
	for range 2 {
		l, stop := started(t, Options{Path: path, Node: "n1", Now: clock.now, Signer: s})
		for range 5 {
			if err := l.Write(t.Context(), Entry{Stage: stageComplete, Method: "/a.B/C", ID: "e", Code: "ok"}); err != nil {
				t.Fatal(err)
			}
			clock.advance(40 * time.Minute)
		}
		stop()
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, bytes.SplitAfter(bytes.TrimSuffix(text, []byte{'\n'}), []byte{'\n'})
}

// relink rebuilds the hash chain after a change, as anybody who can write the
// file could.
func relink(t *testing.T, lines [][]byte, change func(i int, l *line)) []byte {
	t.Helper()
	prev, out := "", []byte(nil)
	for i, text := range lines {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			prev = l.Prev
		}
		l.Prev = prev
		if change != nil {
			change(i, &l)
		}
		text, err := l.render()
		if err != nil {
			t.Fatal(err)
		}
		out, prev = append(out, text...), hashOf(text[:len(text)-1])
	}
	return out
}

// Lines are signed within an hour, at the start and at the end. The first line
// of a log names the key, and the chain cannot be rebuilt without the key.
func TestCheckpointsAreSignedHourly(t *testing.T) {
	s := newSigner(t)
	path, lines := signedLog(t, s)
	var signed []int
	for i, text := range lines {
		if bytes.Contains(text, []byte(`"checkpoint":{`)) {
			signed = append(signed, i)
		}
	}
	if r, err := Verify(path, "", s.Public()); err != nil || r.Key != s.Public() || int(r.Checkpoints) != len(signed) || r.Unsigned != 0 || int(r.Lines) != len(lines) {
		t.Fatalf("%+v, %v", r, err)
	}
	if len(lines) != 10+len(signed) || len(signed) < 8 || signed[0] != 0 || signed[len(signed)-1] != len(lines)-1 {
		t.Fatalf("of %d lines these are checkpoints: %v", len(lines), signed)
	}
	other, plain := newSigner(t), func(keep func(int) bool) (out [][]byte) {
		for i, text := range lines {
			if keep(i) {
				out = append(out, text)
			}
		}
		return out
	}
	middle := signed[3]
	for name, text := range map[string][]byte{
		"a line changed":           relink(t, lines, func(i int, l *line) { l.ID = strings.Replace(l.ID, "e", "f", 1) }),
		"a line taken out":         relink(t, plain(func(i int) bool { return i != 1 }), nil),
		"the time of a checkpoint": relink(t, lines[:middle+1], func(i int, l *line) { l.Time = l.Time.Add(time.Second) }),
		"signed by another": relink(t, lines, func(_ int, l *line) {
			if l.Checkpoint != nil {
				other.sign(l)
			}
		}),
		"all checkpoints taken out": relink(t, plain(func(i int) bool { return !bytes.Contains(lines[i], []byte(`"checkpoint":{`)) }), nil),
		"the last ones taken out":   relink(t, plain(func(i int) bool { return i <= middle || !bytes.Contains(lines[i], []byte(`"checkpoint":{`)) }), nil),
		"a key of no length": relink(t, lines, func(_ int, l *line) {
			if l.Checkpoint != nil {
				l.Checkpoint.Key = nil
			}
		}),
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var fault *Fault
		if r, err := Verify(path, "", s.Public()); !errors.As(err, &fault) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	// Lines after a checkpoint can be removed unnoticed, unless the head was
	// stored elsewhere.
	whole := bytes.Join(lines, nil)
	if err := os.WriteFile(path, append(whole, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Verify(path, "", s.Public())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Join(lines[:signed[5]+1], nil), 0o600); err != nil {
		t.Fatal(err)
	}
	var fault *Fault
	if _, err := Verify(path, r.Head, s.Public()); !errors.As(err, &fault) {
		t.Errorf("the tail behind a checkpoint is gone: %v", err)
	}
	if cut, err := Verify(path, "", s.Public()); err != nil || !cut.Signed.Before(r.Signed) {
		t.Errorf("a shorter log: %+v, %v", cut, err)
	}
}

// After a torn checkpoint, the next process signs the lines again.
func TestTornCheckpointIsSignedAgain(t *testing.T) {
	s := newSigner(t)
	path, lines := signedLog(t, s)
	whole := bytes.Join(lines, nil)
	last := len(lines[len(lines)-1])
	for cut := len(whole) - last + 1; cut < len(whole); cut += 7 {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		_, stop := started(t, Options{Path: path, Node: "n1", Now: func() time.Time { return time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC) }, Signer: s})
		stop()
		if r, err := Verify(path, "", s.Public()); err != nil || r.Torn != 1 || r.Unsigned != 0 {
			t.Fatalf("cut at %d: %+v, %v", cut, r, err)
		}
	}
}

// The key is created once, only its owner can read it, and an invalid key file
// is rejected.
func TestSigningKeyIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit", "key")
	a, err := OpenSigner(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if b, err := OpenSigner(path); err != nil || b.Public() != a.Public() {
		t.Errorf("read again: %v", err)
	}
	for _, text := range []string{"", "abc", strings.Repeat("z", 64)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSigner(path); err == nil {
			t.Errorf("%q is a secret", text)
		}
	}
}
