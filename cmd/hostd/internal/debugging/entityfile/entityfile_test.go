package entityfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files instead of comparing with them")

// sample returns a file with that many events and a module of size bytes.
func sample(t testing.TB, events, size int) ([]byte, []Event) {
	t.Helper()
	module := bytes.Repeat([]byte("w"), size)
	digest := sha256.Sum256(module)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	var out bytes.Buffer
	w, err := NewWriter(&out, About{
		EntityType: "order", EntityID: "o-1", Sequence: uint64(events), ModuleDigest: hex.EncodeToString(digest[:]),
		Manifest: json.RawMessage(`{"name":"order"}`), PulledAt: at, Release: "1",
	}, module)
	if err != nil {
		t.Fatal(err)
	}
	var all []Event
	for i := range events {
		e := Event{Sequence: uint64(i + 1), RecordedAt: at.Add(time.Duration(i)), EventType: "added", Data: []byte{0xff, byte(i)}, CommandID: "c", Tags: []string{"t"}, ModuleDigest: "d"}
		all = append(all, e)
		if err := w.Event(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), all
}

// readAll reads a file to its end.
func readAll(b []byte) (*Reader, []Event, error) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, nil, err
	}
	var events []Event
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r, events, nil
		}
		if err != nil {
			return r, events, err
		}
		events = append(events, e)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, size := range []int{0, 7, 1 << 20, 2<<20 + 5} {
		whole, want := sample(t, 3, size)
		r, got, err := readAll(whole)
		if err != nil || !reflect.DeepEqual(got, want) || len(r.Module) != size || r.About.EntityID != "o-1" || r.About.Sequence != 3 {
			t.Errorf("%d bytes: %+v, %+v: %v", size, r, got, err)
		}
	}
}

// TestDamageIsDetected checks every flipped bit, every truncation and an additional
// byte.
func TestDamageIsDetected(t *testing.T) {
	whole, _ := sample(t, 2, 20)
	for i := range whole {
		bad := slices.Clone(whole)
		bad[i] ^= 1 << (i % 8)
		if _, _, err := readAll(bad); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrUnsupported) {
			t.Fatalf("byte %d: %v", i, err)
		}
		if _, _, err := readAll(whole[:i]); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrUnsupported) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	if _, _, err := readAll(append(whole, 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte too many: %v", err)
	}
}

// TestHistoriesWithGapsAreRejected checks that a file with a gap, or with an early end,
// is neither written nor read.
func TestHistoriesWithGapsAreRejected(t *testing.T) {
	w, err := NewWriter(io.Discard, About{Sequence: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.Event(Event{Sequence: 1}) != nil || w.Close() == nil || w.Event(Event{Sequence: 3}) == nil {
		t.Error("a history with a gap is written")
	}
}

// TestTruncatedHistoryBeginsWithState checks that if the first events were truncated,
// the first remaining event follows the state, which may be empty.
func TestTruncatedHistoryBeginsWithState(t *testing.T) {
	module := []byte("module")
	digest := sha256.Sum256(module)
	for _, state := range [][]byte{{}, []byte("state")} {
		for events := range 3 {
			var out bytes.Buffer
			about := About{Sequence: uint64(7 + events), ModuleDigest: hex.EncodeToString(digest[:]), Base: &Base{Sequence: 7, State: state}}
			w, err := NewWriter(&out, about, module)
			if err != nil {
				t.Fatal(err)
			}
			if w.Event(Event{Sequence: 1}) == nil {
				t.Fatal("an event of before the state is written")
			}
			for i := range events {
				if err := w.Event(Event{Sequence: uint64(8 + i)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			whole := out.Bytes()
			r, got, err := readAll(whole)
			if err != nil || len(got) != events || r.About.Base == nil || r.About.Base.Sequence != 7 || !bytes.Equal(r.About.Base.State, state) {
				t.Errorf("%d events behind a state of %d bytes: %+v, %d: %v", events, len(state), r, len(got), err)
			}
			for i := range whole {
				bad := slices.Clone(whole)
				bad[i] ^= 1 << (i % 8)
				if _, _, err := readAll(bad); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrUnsupported) {
					t.Fatalf("byte %d: %v", i, err)
				}
			}
		}
	}
}

func TestGoldenFile(t *testing.T) {
	whole, _ := sample(t, 2, 8)
	var out strings.Builder
	for len(whole) > 0 {
		n := min(len(whole), 32)
		fmt.Fprintln(&out, hex.EncodeToString(whole[:n]))
		whole = whole[n:]
	}
	const path = "testdata/entity.txt"
	if *rewrite {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || out.String() != string(want) {
		t.Errorf("the format changed: %v; got\n%s", err, out.String())
	}
}

func FuzzRead(f *testing.F) {
	whole, _ := sample(f, 2, 8)
	f.Add(whole)
	f.Fuzz(func(t *testing.T, b []byte) { _, _, _ = readAll(b) })
}
