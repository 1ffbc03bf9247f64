package wal

import (
	"bytes"
	"testing"
)

// TestRecordIsValidOnlyAtItsPosition reads a record as if it were in a
// different log, segment, epoch or offset, where it must be invalid.
func TestRecordIsValidOnlyAtItsPosition(t *testing.T) {
	id := LogID{1, 2, 3}
	own := newCoder(id, 5, 9)
	b, _ := own.appendRecord(nil, 8192, 4096, 7, []byte("pay"), []byte("load"))
	if len(b) != 24 || int64(len(b)) != recordBytes(7) {
		t.Fatalf("record of %d bytes", len(b))
	}
	tests := []struct {
		name   string
		coder  coder
		offset int64
		want   bool
	}{
		{"its own place", own, 8192, true},
		{"another log", newCoder(LogID{1, 2, 4}, 5, 9), 8192, false},
		{"another segment", newCoder(id, 6, 9), 8192, false},
		{"another epoch", newCoder(id, 5, 10), 8192, false},
		{"another offset", own, 8200, false},
		{"beyond the end", own, 16384 - 16, false},
	}
	for _, test := range tests {
		h, ok := test.coder.decodeHeader(b, test.offset, 16384)
		ok = ok && h.isValid(b[recordHeaderBytes:])
		if ok != test.want {
			t.Errorf("%s: %v", test.name, ok)
		}
		if ok && (h.kind != 7 || h.length != 7 || h.synced != 4096) {
			t.Errorf("%s: %+v", test.name, h)
		}
	}
	for bit := range len(b) * 8 {
		flipped := bytes.Clone(b)
		flipped[bit/8] ^= 1 << (bit % 8)
		if h, ok := own.decodeHeader(flipped, 8192, 16384); ok && h.bytes() == 24 && h.isValid(flipped[recordHeaderBytes:]) {
			t.Errorf("bit %d flipped and not noticed", bit)
		}
	}
}

func TestParseSegmentNames(t *testing.T) {
	for _, test := range []struct {
		name   string
		number uint64
		ok     bool
	}{
		{segmentName(0x1f), 0x1f, true}, {"000000000000001F.wal", 0, false}, {"1f.wal", 0, false},
		{"000000000000001f.wal.tmp", 0, false}, {"000000000000001f.free", 0, false}, {"+00000000000001f.wal", 0, false},
		{".wal", 0, false}, {"", 0, false},
	} {
		if number, ok := parseName(test.name, segmentSuffix); number != test.number || ok != test.ok {
			t.Errorf("%q: %d, %v", test.name, number, ok)
		}
	}
}
