package wal

import (
	"errors"
	"io"

	"github.com/hostd/hostd/journal/disk"
)

// windowBytes is the number of bytes of a segment that are read at a time.
const windowBytes = 1 << 20

// window reads a file through a buffer that grows to the largest record.
type window struct {
	file disk.File
	buf  []byte
	from int64 // offset of buf in the file
	size int64 // size of the file
}

// peek returns n bytes at offset, which must be inside the file. They are valid
// until the next call.
func (w *window) peek(offset int64, n int) ([]byte, error) {
	if offset < w.from || offset+int64(n) > w.from+int64(len(w.buf)) {
		if err := w.fill(offset, n); err != nil {
			return nil, err
		}
	}
	at := offset - w.from
	return w.buf[at : at+int64(n) : at+int64(n)], nil
}

// fill reads ahead, or only the requested bytes if the bytes after them cannot
// be read.
func (w *window) fill(offset int64, n int) error {
	ahead := int(min(int64(max(n, windowBytes)), w.size-offset))
	err := w.load(offset, ahead)
	if err != nil && n < ahead {
		err = w.load(offset, n)
	}
	return err
}

func (w *window) load(offset int64, length int) error {
	if cap(w.buf) < length {
		w.buf = make([]byte, length)
	}
	w.buf, w.from = w.buf[:length], offset
	if got, err := w.file.ReadAt(w.buf, offset); err != nil && (!errors.Is(err, io.EOF) || got < length) {
		w.buf = w.buf[:0]
		return err
	}
	return nil
}

// record is a valid record. The payload is valid until the next read.
type record struct {
	position Position
	kind     byte
	crc      uint32
	payload  []byte
}

// reader walks the records of a segment.
type reader struct {
	window window
	coder  coder
	id     LogID
	// next is where the next record starts, and limit where the last record
	// must end.
	next    Position
	limit   int64
	lastCRC uint32
}

func newReader(file disk.File, h segmentHeader, limit int64) *reader {
	return &reader{
		window: window{file: file, size: h.size},
		coder:  newCoder(h.id, h.number, h.epoch),
		id:     h.id,
		next:   Position{h.number, headerBytes},
		limit:  limit,
	}
}

// read returns the record at r.next and advances r. If there is no valid
// record, reason says why and r does not advance. err is a disk error.
func (r *reader) read() (rec record, reason string, err error) {
	offset := r.next.Offset
	if r.limit-offset < recordHeaderBytes {
		return rec, "the segment ends", nil
	}
	b, err := r.window.peek(offset, recordHeaderBytes)
	if err != nil {
		return rec, "", err
	}
	if [recordHeaderBytes]byte(b) == ([recordHeaderBytes]byte{}) {
		return rec, "zeros instead of a record", nil
	}
	h, ok := r.coder.decodeHeader(b, offset, r.limit)
	if !ok {
		return rec, "no record header", nil
	}
	body, err := r.window.peek(offset+recordHeaderBytes, int(h.bytes()-recordHeaderBytes))
	if err != nil {
		return rec, "", err
	}
	if !h.isValid(body) {
		return rec, "record fails its checksum", nil
	}
	rec = record{position: r.next, kind: h.kind, crc: h.crc, payload: body[:h.length:h.length]}
	if h.kind == epochKind {
		if reason := r.newEpoch(rec.payload); reason != "" {
			return rec, reason, nil
		}
	}
	r.next.Offset += h.bytes()
	r.lastCRC = h.crc
	return rec, "", nil
}

// newEpoch switches to the epoch that the log started when it was opened again.
func (r *reader) newEpoch(payload []byte) (reason string) {
	if len(payload) != 8 {
		return "epoch record with a wrong length"
	}
	epoch := littleEndian.Uint64(payload)
	if epoch != r.coder.epoch+1 {
		return "epoch record skips an epoch"
	}
	r.coder = newCoder(r.id, r.next.Segment, epoch)
	return ""
}

// findDamageProof is called if there is no complete record at r.next. It
// searches the bytes after r.next for a record of the same epoch that was
// encoded when the segment was already synced beyond r.next. Such a record
// proves that the bytes at r.next were synced too, and are damaged rather than
// torn. findDamageProof returns the offset of that record, or 0 if there is
// none.
func (r *reader) findDamageProof() (offset int64, err error) {
	return r.find(r.next.Offset, r.next.Offset)
}

// find returns the offset of the first complete record of the reader's epoch
// that is after the given offset and was encoded when the segment was synced
// beyond the offset floor. It returns 0 if there is none.
func (r *reader) find(after, floor int64) (offset int64, err error) {
	for offset = after + alignment; r.limit-offset >= recordHeaderBytes; {
		length := min(int64(windowBytes), r.limit-offset)
		b, err := r.window.peek(offset, int(length))
		if err != nil {
			return 0, err
		}
		at := r.findHeader(b, offset, floor)
		if at < 0 {
			offset += length&^(alignment-1) - alignment
			continue
		}
		offset += at
		whole, err := r.isValidAt(offset)
		if whole || err != nil {
			return offset, err
		}
		offset += alignment
	}
	return 0, nil
}

// findHeader returns the index in b, which holds the bytes at offset base, of
// the first valid header that shows that the segment was synced beyond floor.
// It returns -1 if there is none.
func (r *reader) findHeader(b []byte, base, floor int64) int64 {
	for i := int64(0); int64(len(b))-i >= recordHeaderBytes; i += alignment {
		synced := int64(littleEndian.Uint32(b[i+12:])) * alignment
		if synced <= floor || synced > base+i {
			continue
		}
		if _, ok := r.coder.decodeHeader(b[i:], base+i, r.limit); ok {
			return i
		}
	}
	return -1
}

func (r *reader) isValidAt(offset int64) (bool, error) {
	b, err := r.window.peek(offset, recordHeaderBytes)
	if err != nil {
		return false, err
	}
	h, _ := r.coder.decodeHeader(b, offset, r.limit)
	body, err := r.window.peek(offset+recordHeaderBytes, int(h.bytes()-recordHeaderBytes))
	if err != nil {
		return false, err
	}
	return h.isValid(body), nil
}
