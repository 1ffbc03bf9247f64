package store

import (
	"encoding/binary"
	"time"
)

// Batch collects pairs for one version. It keeps one buffer and is meant to be
// reused. The zero Batch is empty and ready to use. It serves one goroutine.
type Batch struct {
	// Pause, if set, is called between two parts of a batch that is committed
	// to Badger in several parts, with the duration of the last part. Reset
	// does not clear it.
	Pause func(took time.Duration)

	buf []byte
	kvs []pair
	key []byte
}

// pair holds offsets into buf: the key, then the framed value up to end.
type pair struct {
	key, value, end int
	delete          bool
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() { b.buf, b.kvs = b.buf[:0], b.kvs[:0] }

// Len returns the number of pairs.
func (b *Batch) Len() int { return len(b.kvs) }

// Key returns an empty scratch slice to append a key to.
func (b *Batch) Key() []byte { return b.key[:0] }

// Begin starts a pair. It copies the key and returns a slice to which the
// caller appends the value's body; the result is passed to End. No other method
// may be called in between.
func (b *Batch) Begin(key []byte) []byte {
	b.key = key
	start := len(b.buf)
	b.buf = append(b.buf, key...)
	b.kvs = append(b.kvs, pair{key: start, value: len(b.buf)})
	return append(b.buf, valueVersion, 0, 0, 0, 0)
}

// End finishes the pair that Begin started.
func (b *Batch) End(buf []byte) {
	p := &b.kvs[len(b.kvs)-1]
	p.end = len(buf)
	crc := sum(buf[p.key:p.value], buf[p.value+frameBytes:])
	binary.LittleEndian.PutUint32(buf[p.value+1:], crc)
	b.buf = buf
}

// Put adds a pair with an existing body.
func (b *Batch) Put(key, body []byte) { b.End(append(b.Begin(key), body...)) }

// Delete adds the deletion of a key.
func (b *Batch) Delete(key []byte) {
	b.key = key
	start := len(b.buf)
	b.buf = append(b.buf, key...)
	b.kvs = append(b.kvs, pair{key: start, value: len(b.buf), end: len(b.buf), delete: true})
}

// Each calls fn for the pairs in insertion order. The body of a deletion is
// nil. Both slices belong to the batch.
func (b *Batch) Each(fn func(key, body []byte)) {
	for _, p := range b.kvs {
		if p.delete {
			fn(b.buf[p.key:p.value:p.value], nil)
		} else {
			fn(b.buf[p.key:p.value:p.value], b.buf[p.value+frameBytes:p.end:p.end])
		}
	}
}
