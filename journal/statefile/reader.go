package statefile

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/hostd/hostd/journal"
)

// Reader reads a stream chunk by chunk and verifies every byte of it. Its
// errors are those of the underlying reader, journal.ErrDamaged (also for a
// truncated stream) and journal.ErrUnsupported.
type Reader struct {
	from   io.Reader
	tee    io.Writer
	head   Header
	sum    hash.Hash
	number uint64
	pairs  uint64
	bytes  uint64
	offset int64
	tail   Trailer
	ended  bool
	buf    []byte
}

// NewReader reads the header of a stream. If tee is not nil, all bytes read are
// written to it before they are verified.
func NewReader(from io.Reader, tee io.Writer) (*Reader, error) {
	r := &Reader{from: from, tee: tee, sum: sha256.New()}
	b, err := r.read(nil, headBytes)
	if err != nil {
		return nil, err
	}
	r.head, err = decodeHeader(b)
	r.sum.Write(b)
	r.offset = headBytes
	return r, err
}

// Header returns the header of the stream.
func (r *Reader) Header() Header { return r.head }

// Offset returns the number of bytes read and verified: the header, complete
// chunks, and at the end the trailer. It is 0 if the stream contradicts its own
// checksums, because reading cannot be resumed then.
func (r *Reader) Offset() int64 { return r.offset }

// Resume continues after an error of the underlying reader, with the bytes that
// start at Offset.
func (r *Reader) Resume(from io.Reader, tee io.Writer) { r.from, r.tee = from, tee }

// read appends n bytes of the stream to b.
func (r *Reader) read(b []byte, n int) ([]byte, error) {
	start := len(b)
	if cap(b)-start < n {
		b = append(make([]byte, 0, start+n), b...)
	}
	b = b[:start+n]
	if _, err := io.ReadFull(r.from, b[start:]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: the snapshot is truncated", journal.ErrDamaged)
		}
		return nil, err
	}
	if r.tee != nil {
		if _, err := r.tee.Write(b[start:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Next returns the next chunk, or io.EOF once the trailer has verified the
// whole stream. If own is set the caller owns the chunk; otherwise it is valid
// until the next call.
func (r *Reader) Next(own bool) (Chunk, error) {
	if r.ended {
		return nil, io.EOF
	}
	b := r.buf[:0]
	if own {
		b = nil
	}
	var head [frameBytes]byte
	frame, err := r.read(head[:0], frameBytes)
	if err != nil {
		return nil, err
	}
	n := int(le.Uint32(frame))
	if n == 0 {
		return nil, r.end(frame)
	}
	if n > maxChunkBytes {
		return nil, fmt.Errorf("%w: snapshot chunk with %d bytes", journal.ErrDamaged, n)
	}
	if b, err = r.read(b, n); err != nil {
		return nil, err
	}
	if chunkSum(b, r.number) != le.Uint32(frame[4:]) {
		return nil, fmt.Errorf("%w: chunk %d of a snapshot fails its checksum", journal.ErrDamaged, r.number)
	}
	r.sum.Write(frame)
	r.sum.Write(b)
	r.offset += int64(frameBytes + n)
	r.number++
	if !own {
		r.buf = b
	}
	err = Chunk(b).Each(func(key, value []byte) error {
		r.pairs++
		r.bytes += uint64(len(key) + len(value))
		return nil
	})
	if err != nil {
		r.offset = 0
	}
	return b, err
}

// end verifies the trailer.
func (r *Reader) end(frame []byte) error {
	b, err := r.read(make([]byte, 0, tailBytes), tailBytes-frameBytes)
	if err != nil {
		return err
	}
	if chunkSum(b[:16], r.number) != le.Uint32(frame[4:]) {
		return fmt.Errorf("%w: snapshot trailer fails its checksum", journal.ErrDamaged)
	}
	r.sum.Write(frame)
	r.sum.Write(b[:16])
	r.tail = Trailer{Pairs: le.Uint64(b), Bytes: le.Uint64(b[8:]), Digest: Digest(b[16:])}
	whole := r.offset + tailBytes
	r.offset = 0 // nothing can be resumed unless the trailer is valid
	var sum Digest
	r.sum.Sum(sum[:0])
	if sum != r.tail.Digest || r.tail.Pairs != r.pairs || r.tail.Bytes != r.bytes {
		return fmt.Errorf("%w: snapshot trailer contradicts the snapshot", journal.ErrDamaged)
	}
	r.ended, r.offset = true, whole
	return io.EOF
}

// Trailer returns the trailer of the stream, once Next returned io.EOF.
func (r *Reader) Trailer() Trailer { return r.tail }

// Verify reads the rest of a stream and checks its digest.
func (r *Reader) Verify(want Digest) error {
	for {
		switch _, err := r.Next(false); {
		case errors.Is(err, io.EOF):
			if r.tail.Digest != want {
				return fmt.Errorf("%w: the snapshot's digest differs from the digest in the log", journal.ErrDamaged)
			}
			return nil
		case err != nil:
			return err
		}
	}
}

// Chunk is a verified sequence of pairs.
type Chunk []byte

// Each calls fn with every pair. The slices alias the chunk.
func (c Chunk) Each(fn func(key, value []byte) error) error {
	for b := []byte(c); len(b) > 0; {
		key, rest, ok := field(b)
		value, rest, ok2 := field(rest)
		if !ok || !ok2 {
			return fmt.Errorf("%w: a key-value pair exceeds its snapshot chunk", journal.ErrDamaged)
		}
		if err := fn(key, value); err != nil {
			return err
		}
		b = rest
	}
	return nil
}

func field(b []byte) (field, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	return b[size : size+int(n) : size+int(n)], b[size+int(n):], true
}
