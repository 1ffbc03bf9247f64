package engine

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/abi"
)

// TestSegmentsAreJoined checks which data sections are rewritten, and into how
// many segments.
func TestSegmentsAreJoined(t *testing.T) {
	at := func(offset int32, data string) []byte {
		return cat([]byte{0}, i32c(offset), []byte{opEnd}, text(data))
	}
	payload := func(segments ...[]byte) []byte { return vec(segments...) }
	tests := []struct {
		name      string
		payload   []byte
		dataCount int
		segments  int // -1 leaves the section as it is
	}{
		{"none", payload(), -1, 0},
		{"one", payload(at(8, "a")), -1, 1},
		{"touching", payload(at(8, "a"), at(9, "b")), -1, 1},
		{"gap of 128", payload(at(8, "a"), at(9+128, "b"), at(9+128+1, "c")), -1, 1},
		{"gap of 129", payload(at(8, "a"), at(9+129, "b")), -1, 2},
		{"high addresses", payload(at(-16, "a"), at(-8, "b")), -1, 1},
		{"across the sign", payload(at(1<<31-4, "a"), at(-1<<31, "b")), -1, 1},
		{"overlapping", payload(at(8, "ab"), at(9, "c")), -1, -1},
		{"descending", payload(at(9, "b"), at(400, "c"), at(8, "a")), -1, 2},
		{"overlapping and descending", payload(at(9, "b"), at(8, "xy")), -1, -1},
		{"empty segment", payload(at(9, "b"), at(8, "")), -1, 1},
		{"data count section", payload(at(8, "a"), at(9, "b")), 2, -1},
		{"passive", payload(at(8, "a"), cat([]byte{1}, text("b"))), -1, -1},
		{"offset from a global", payload(cat([]byte{0, opGlobalGet, 0, opEnd}, text("b"))), -1, -1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := bytes.Clone(test.payload)
			got := (&parsedModule{dataCount: test.dataCount}).mergedData(test.payload)
			if !bytes.Equal(test.payload, before) {
				t.Error("the module itself was written to")
			}
			if test.segments < 0 {
				if !bytes.Equal(got, test.payload) {
					t.Errorf("section was rewritten to % x", got)
				}
				return
			}
			if segments, ok := activeSegments(got); !ok || len(segments) != test.segments {
				t.Errorf("section is % x, want %d segments", got, test.segments)
			}
		})
	}
}

// TestJoinedSegmentsFillMemoryAlike compares the memory that a random data
// section makes with the one its joined form makes.
func TestJoinedSegmentsFillMemoryAlike(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	fill := func(payload []byte) []byte {
		memory := make([]byte, 1<<16)
		segments, ok := activeSegments(payload)
		if !ok {
			t.Fatal("not a plain data section")
		}
		for _, s := range segments {
			copy(memory[s.offset:], s.data)
		}
		return memory
	}
	joined := 0
	for range 200 {
		var items [][]byte
		for offset := random.IntN(100); offset < 1<<16-300 && len(items) < 300; offset += random.IntN(300) {
			data := bytes.Repeat([]byte{byte(1 + random.IntN(255))}, random.IntN(80))
			items = append(items, cat([]byte{0}, i32c(int32(offset)), []byte{opEnd}, text(string(data))))
			offset += len(data)
		}
		payload := vec(items...)
		merged := (&parsedModule{dataCount: -1}).mergedData(payload)
		if !bytes.Equal(fill(payload), fill(merged)) {
			t.Fatalf("memory differs for %d segments", len(items))
		}
		if segments, _ := activeSegments(merged); len(segments) < len(items) {
			joined++
		}
	}
	if joined < 100 {
		t.Errorf("only %d of 200 sections were joined at all", joined)
	}
}

func TestSignedNumbers(t *testing.T) {
	for _, want := range []int32{0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8193, 1<<31 - 1, -1 << 31, 1<<28 - 1, -1 << 28, 1 << 30} {
		encoded := appendSigned(nil, int64(want))
		if !bytes.Equal(encoded, sleb(int64(want))) {
			t.Errorf("%d is written % x", want, encoded)
		}
		c := &cursor{data: encoded, end: len(encoded)}
		if got := c.signed(); got != want || c.left() != 0 {
			t.Errorf("%d is read as %d", want, got)
		}
	}
}

// TestJoinedSegmentOutsideMemoryIsRefused: joining must not make a module
// start that would not.
func TestJoinedSegmentOutsideMemoryIsRefused(t *testing.T) {
	guest := &testGuest{data: [][]byte{
		cat([]byte{0}, i32c(24*pageBytes-2), []byte{opEnd}, text("a")),
		cat([]byte{0}, i32c(24*pageBytes-1), []byte{opEnd}, text("bc"))}}
	if _, err := newEngine(t, Options{}).Compile(t.Context(), [32]byte{}, guest.build()); err == nil {
		t.Error("compiled and started")
	}
	guest.data[1] = cat([]byte{0}, i32c(24*pageBytes-1), []byte{opEnd}, text("b"))
	guest.bodies = map[string][]byte{abi.ExportQuery: spanc(24*pageBytes-2, 2)}
	if out, err := start(t, Options{}, guest).Query(0, nil, Env{}); err != nil || string(out) != "ab" {
		t.Errorf("memory holds %q, %v", out, err)
	}
}
