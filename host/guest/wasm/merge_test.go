package wasm

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hostd/hostd/abi"
)

func cat(parts ...[]byte) []byte { return slices.Concat(parts...) }

func metered(items ...[]byte) []byte {
	return cat(binary.AppendUvarint(nil, uint64(len(items))), cat(items...))
}

func text(s string) []byte { return cat(binary.AppendUvarint(nil, uint64(len(s))), []byte(s)) }

func i32c(v int32) []byte { return AppendSigned([]byte{OpI32Const}, int64(v)) }

// TestMeteringPointsAreBounded checks that the number of a module's points is
// bounded, even if each of its functions has only a few points.
func TestMeteringPointsAreBounded(t *testing.T) {
	const functions = 32_768
	module := func(loops int) []byte {
		out := cat(Magic, Version)
		section := func(id byte, payload []byte) { out = cat(out, []byte{id}, text(string(payload))) }
		number := binary.AppendUvarint(nil, functions)
		section(SectionType, metered([]byte{TypeFunction, 0, 0}))
		section(SectionFunction, cat(number, make([]byte, functions)))
		section(SectionMemory, metered([]byte{0, 1}))
		body := cat([]byte{0}, bytes.Repeat([]byte{OpLoop, 0x40, OpEnd}, loops), []byte{OpEnd})
		section(SectionCode, cat(number, bytes.Repeat(text(string(body)), functions)))
		return out
	}
	rules := Rules{Limits: abi.DefaultLimits()}
	if _, err := AdmitMetered(module(14), rules); err != nil {
		t.Error(err)
	}
	const want = "module refused: function body 31250: more than 500000 functions, loops and switch cases up to here; split the module"
	if _, err := AdmitMetered(module(15), rules); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// TestSegmentsAreJoined checks that segments are joined into the expected
// number, and that other data sections stay unchanged.
func TestSegmentsAreJoined(t *testing.T) {
	at := func(offset int32, data string) []byte {
		return cat([]byte{0}, i32c(offset), []byte{OpEnd}, text(data))
	}
	payload := func(segments ...[]byte) []byte { return metered(segments...) }
	tests := []struct {
		name      string
		payload   []byte
		dataCount int
		segments  int // -1 if the section stays unchanged
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
		{"offset from a global", payload(cat([]byte{0, OpGlobalGet, 0, OpEnd}, text("b"))), -1, -1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := bytes.Clone(test.payload)
			got := (&Metered{Module: &Module{DataCount: test.dataCount}}).mergedData(test.payload)
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

// TestJoinedSegmentsProduceSameMemory checks that a random data section and
// its joined form produce the same memory content.
func TestJoinedSegmentsProduceSameMemory(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	fill := func(payload []byte) []byte {
		memory := make([]byte, 1<<16)
		segments, ok := activeSegments(payload)
		if !ok {
			t.Fatal("not a plain data section")
		}
		for _, s := range segments {
			copy(memory[s.Offset:], s.Data)
		}
		return memory
	}
	joined := 0
	for range 200 {
		var items [][]byte
		for offset := random.IntN(100); offset < 1<<16-300 && len(items) < 300; offset += random.IntN(300) {
			data := bytes.Repeat([]byte{byte(1 + random.IntN(255))}, random.IntN(80))
			items = append(items, cat([]byte{0}, i32c(int32(offset)), []byte{OpEnd}, text(string(data))))
			offset += len(data)
		}
		payload := metered(items...)
		merged := (&Metered{Module: &Module{DataCount: -1}}).mergedData(payload)
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
