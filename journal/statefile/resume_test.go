package statefile

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/hostd/hostd/journal"
)

// TestReaderResumesAfterInterruption interrupts a stream at many offsets,
// repeatedly. A reader continues without reading the verified bytes again.
func TestReaderResumesAfterInterruption(t *testing.T) {
	whole := stream(t, &pairs{n: 40, size: 20 << 10})
	broken := errors.New("broken")
	for cut := headBytes; cut < len(whole); cut += 1009 {
		var file bytes.Buffer
		from := io.MultiReader(bytes.NewReader(whole[:cut]), iotest.ErrReader(broken))
		r, err := NewReader(from, &file)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = r.Next(false)
		}
		if !errors.Is(err, broken) || r.Offset() > int64(cut) || r.Offset() < int64(cut)-maxChunkBytes {
			t.Fatalf("cut at %d: offset %d, %v", cut, r.Offset(), err)
		}
		file.Truncate(int(r.Offset()))
		rest, err := NewReaderFrom(bytes.NewReader(whole), int64(len(whole)), r.Offset())
		if err != nil {
			t.Fatal(err)
		}
		r.Resume(rest, &file)
		for err == nil {
			_, err = r.Next(false)
		}
		if !errors.Is(err, io.EOF) || r.Trailer().Pairs != 40 || r.Offset() != int64(len(whole)) || !bytes.Equal(file.Bytes(), whole) {
			t.Fatalf("cut at %d: %+v at %d of %d: %v", cut, r.Trailer(), r.Offset(), len(whole), err)
		}
	}
}

// TestOffsetReaderReturnsNoDamagedBytes flips each bit of a stream. The reader
// returns only correct bytes, and no bytes from the damaged part on.
func TestOffsetReaderReturnsNoDamagedBytes(t *testing.T) {
	whole := stream(t, &pairs{n: 3, size: 10})
	for i := range whole[:len(whole)-len(Digest{})] {
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << bit
			r, err := NewReaderFrom(bytes.NewReader(bad), int64(len(bad)), 0)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if !errors.Is(err, journal.ErrDamaged) && !errors.Is(err, journal.ErrUnsupported) || !bytes.HasPrefix(whole, got) || len(got) > i {
				t.Fatalf("bit %d of byte %d flipped: %d bytes, %v", bit, i, len(got), err)
			}
		}
	}
}

func TestOffsetReaderStartsAtChunkBoundaries(t *testing.T) {
	whole := stream(t, &pairs{n: 30, size: 20 << 10})
	boundaries := 0
	for offset := range len(whole) + 1 {
		r, err := NewReaderFrom(bytes.NewReader(whole), int64(len(whole)), int64(offset))
		if errors.Is(err, ErrNoBoundary) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		boundaries++
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, whole[offset:]) {
			t.Fatalf("from %d: %d bytes, %v", offset, len(got), err)
		}
	}
	if boundaries != 6 { // the start, and the ends of the header, three chunks and the trailer
		t.Errorf("%d boundaries", boundaries)
	}
	for _, offset := range []int64{int64(len(whole)) + 1, 1 << 40} {
		if _, err := NewReaderFrom(bytes.NewReader(whole), int64(len(whole)), offset); !errors.Is(err, ErrNoBoundary) {
			t.Errorf("from %d: %v", offset, err)
		}
	}
}
