package statefile

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
)

// Source returns pairs one after another, in its own order.
type Source interface {
	// Next returns the next pair, valid until the next call, or io.EOF.
	Next() (key, value []byte, err error)
	// Close releases the resources of the source.
	Close() error
}

// Writer is an io.Reader of the stream of a source. It holds one chunk in
// memory.
type Writer struct {
	from   Source
	mem    []byte
	buf    []byte // part of mem that is not read yet
	sum    hash.Hash
	number uint64
	tail   Trailer
	err    error
}

// NewWriter returns the stream of the source's pairs. Closing it closes the
// source.
func NewWriter(h Header, from Source) *Writer {
	w := &Writer{from: from, sum: sha256.New()}
	w.buf = appendHeader(nil, h)
	w.sum.Write(w.buf)
	return w
}

// Read implements io.Reader. An error of the source ends the stream.
func (w *Writer) Read(p []byte) (int, error) {
	if len(w.buf) == 0 {
		if w.err != nil {
			return 0, w.err
		}
		w.fill()
		if len(w.buf) == 0 {
			return 0, w.err
		}
	}
	n := copy(p, w.buf)
	w.buf = w.buf[n:]
	return n, nil
}

// fill encodes the next chunk, and the trailer at the end.
func (w *Writer) fill() {
	if w.mem == nil {
		w.mem = make([]byte, 0, 4<<10)
	}
	b := append(w.mem[:0], 0, 0, 0, 0, 0, 0, 0, 0)
	for len(b) < ChunkBytes {
		key, value, err := w.from.Next()
		if errors.Is(err, io.EOF) {
			w.err = io.EOF
			break
		}
		if err == nil && len(key)+len(value) > MaxPairBytes {
			err = fmt.Errorf("snapshot: a key-value pair of %d bytes exceeds the limit", len(key)+len(value))
		}
		if err != nil {
			w.err = err
			return
		}
		b = binary.AppendUvarint(b, uint64(len(key)))
		b = append(b, key...)
		b = binary.AppendUvarint(b, uint64(len(value)))
		b = append(b, value...)
		w.tail.Pairs++
		w.tail.Bytes += uint64(len(key) + len(value))
	}
	if len(b) > frameBytes {
		seal(b, 0, w.number)
		w.number++
	} else {
		b = b[:0]
	}
	w.sum.Write(b)
	if w.err == io.EOF {
		b = w.appendTail(b)
	}
	w.mem, w.buf = b, b
}

// appendTail appends the trailer: a frame without pairs, the totals and the
// digest.
func (w *Writer) appendTail(b []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint64(b, w.tail.Pairs)
	b = le.AppendUint64(b, w.tail.Bytes)
	le.PutUint32(b[start+4:], chunkSum(b[start+frameBytes:], w.number))
	w.sum.Write(b[start:])
	w.sum.Sum(w.tail.Digest[:0])
	return append(b, w.tail.Digest[:]...)
}

// Close closes the source.
func (w *Writer) Close() error {
	if w.err == nil {
		w.err = io.ErrClosedPipe
	}
	return w.from.Close()
}
