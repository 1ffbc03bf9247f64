package statefile

import (
	"errors"
	"fmt"
	"io"

	"github.com/hostd/hostd/journal"
)

// ErrNoBoundary means that the offset is not at the end of the header or of a
// chunk.
var ErrNoBoundary = errors.New("the offset is not between two chunks of the snapshot")

// NewReaderFrom returns a reader for the bytes of a stream from offset on. The
// offset is 0, or the Offset of an earlier Reader of the same stream. The new
// reader returns only chunks whose checksum it has verified; damage is
// journal.ErrDamaged.
func NewReaderFrom(stream io.ReaderAt, size, offset int64) (io.Reader, error) {
	r := &offsetReader{from: stream, size: size, at: offset}
	if offset == 0 || offset == size {
		return r, nil
	}
	at := int64(headBytes)
	for at < offset {
		var frame [frameBytes]byte
		if _, err := stream.ReadAt(frame[:], at); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoBoundary, err)
		}
		n := int64(le.Uint32(frame[:]))
		if n == 0 {
			return nil, ErrNoBoundary
		}
		at += frameBytes + n
		r.number++
	}
	if at != offset {
		return nil, ErrNoBoundary
	}
	return r, nil
}

// offsetReader reads one part of a stream at a time: the header, a chunk, or the
// trailer.
type offsetReader struct {
	from   io.ReaderAt
	size   int64
	at     int64
	number uint64 // number of the next chunk
	mem    []byte
	buf    []byte // part of mem that is verified and not read yet
}

// Read implements io.Reader.
func (r *offsetReader) Read(p []byte) (int, error) {
	if len(r.buf) == 0 {
		if r.at == r.size {
			return 0, io.EOF
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func (r *offsetReader) next() error {
	if r.at == 0 {
		if err := r.read(headBytes); err != nil {
			return err
		}
		if _, err := decodeHeader(r.mem); err != nil {
			return err
		}
		return r.advance()
	}
	if err := r.read(frameBytes); err != nil {
		return err
	}
	n, sum := int64(le.Uint32(r.mem)), le.Uint32(r.mem[4:])
	whole, summed := frameBytes+n, frameBytes+n
	if n == 0 {
		whole, summed = tailBytes, tailBytes-int64(len(Digest{}))
	}
	if n > maxChunkBytes || (n == 0) != (r.at+tailBytes == r.size) {
		return fmt.Errorf("%w: snapshot chunk with %d bytes", journal.ErrDamaged, n)
	}
	if err := r.read(whole); err != nil {
		return err
	}
	if chunkSum(r.mem[frameBytes:summed], r.number) != sum {
		return fmt.Errorf("%w: chunk %d of a snapshot fails its checksum", journal.ErrDamaged, r.number)
	}
	r.number++
	return r.advance()
}

// read reads the next n bytes without advancing.
func (r *offsetReader) read(n int64) error {
	if int64(cap(r.mem)) < n {
		r.mem = make([]byte, n)
	}
	r.mem = r.mem[:n]
	got, err := r.from.ReadAt(r.mem, r.at)
	switch {
	case int64(got) == n:
		return nil
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the snapshot is truncated", journal.ErrDamaged)
	}
	return err
}

// advance makes the bytes in mem available and advances.
func (r *offsetReader) advance() error {
	r.buf = r.mem
	r.at += int64(len(r.mem))
	return nil
}
