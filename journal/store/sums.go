package store

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"github.com/hostd/hostd/journal"
)

// SumClass is a group of rows that are summed together.
type SumClass uint8

// Groups of rows. Groups before SumTimers are equal on all replicas of a shard.
const (
	SumHeads       SumClass = iota // ClassEntity, except the parts whose layout a release may choose
	SumDue                         // ClassDue, keys only
	SumOutbox                      // ClassOutbox
	SumInbox                       // ClassInbox
	SumCounts                      // ClassCount except the shard's totals, ClassImport and ClassRun
	SumDeadLetters                 // ClassDeadLetter
	SumMeta                        // ClassMeta
	SumTimers                      // ClassTimer; which timers have such rows depends on the replica's past

	sumClasses = iota
)

// sharedSums is the number of groups that are equal on all replicas.
const sharedSums = int(SumTimers)

// SumOf returns the group of a row, and false if the row belongs to no group.
func SumOf(k Key) (SumClass, bool) {
	switch k.Class {
	case ClassEntity:
		return SumHeads, true
	case ClassDue:
		return SumDue, true
	case ClassOutbox:
		return SumOutbox, true
	case ClassInbox:
		return SumInbox, true
	case ClassCount:
		return SumCounts, len(k.Suffix) > 0
	case ClassImport, ClassRun:
		return SumCounts, true
	case ClassDeadLetter:
		return SumDeadLetters, true
	case ClassMeta:
		return SumMeta, true
	case ClassTimer:
		return SumTimers, true
	}
	return 0, false
}

// RowHash is a 128-bit hash of a row: of its class, its key after the
// generation, and its body. It detects bit rot, not malice.
type RowHash struct{ Lo, Hi uint64 }

// Tag returns 32 bits of the hash.
func (h RowHash) Tag() uint32 { return uint32(h.Hi >> 32) }

// Sum is a number of rows and the sum of their hashes. It does not depend on
// the order of additions and removals.
type Sum struct{ Rows, Lo, Hi uint64 }

// Add adds a row.
func (s *Sum) Add(h RowHash) {
	var carry uint64
	s.Rows++
	s.Lo, carry = bits.Add64(s.Lo, h.Lo, 0)
	s.Hi, _ = bits.Add64(s.Hi, h.Hi, carry)
}

// Take removes a row.
func (s *Sum) Take(h RowHash) {
	var borrow uint64
	s.Rows--
	s.Lo, borrow = bits.Sub64(s.Lo, h.Lo, 0)
	s.Hi, _ = bits.Sub64(s.Hi, h.Hi, borrow)
}

// Sums are the sums of a shard's rows, by group.
type Sums [sumClasses]Sum

// Digest returns a 128-bit checksum of the groups that are equal on all
// replicas.
func (s *Sums) Digest() (d journal.RowsDigest) {
	b := make([]byte, 0, 1+sharedSums*sumBytes)
	b = append(b, 0)
	for i := range s[:sharedSums] {
		b = s[i].append(b)
	}
	binary.LittleEndian.PutUint64(d[:], xxhash.Sum64(b))
	b[0] = 1
	binary.LittleEndian.PutUint64(d[8:], xxhash.Sum64(b))
	return d
}

// Differ names a group in which two sums differ, or returns "".
func (s *Sums) Differ(o *Sums) string {
	for i := range s {
		if s[i] != o[i] {
			return fmt.Sprintf("%s: found %d, expected %d, or with different contents", sumNames[i], s[i].Rows, o[i].Rows)
		}
	}
	return ""
}

var sumNames = [sumClasses]string{
	SumHeads: "entity rows", SumDue: "due timers", SumOutbox: "messages", SumInbox: "inbox counters", SumCounts: "channel counters",
	SumDeadLetters: "dead letters", SumMeta: "metadata pairs", SumTimers: "timers",
}

const sumBytes = 3 * 8

func (s *Sum) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, s.Rows)
	dst = binary.LittleEndian.AppendUint64(dst, s.Lo)
	return binary.LittleEndian.AppendUint64(dst, s.Hi)
}

// appendSums appends the sums at the end of an applied state: a u8 with a bit
// for each group that has rows and, for each of these groups, the number of
// rows u64 and the sum [16], little endian.
func appendSums(dst []byte, s *Sums) []byte {
	at := len(dst)
	dst = append(dst, 0)
	for i := range s {
		if s[i] != (Sum{}) {
			dst[at] |= 1 << i
			dst = s[i].append(dst)
		}
	}
	return dst
}

// decodeSums is the inverse of appendSums.
func decodeSums(b []byte) (s Sums, ok bool) {
	if len(b) == 0 || len(b) != 1+sumBytes*bits.OnesCount8(b[0]) {
		return s, false
	}
	which, b := b[0], b[1:]
	for i := range s {
		if which&(1<<i) == 0 {
			continue
		}
		s[i] = Sum{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])}
		if s[i] == (Sum{}) {
			return s, false
		}
		b = b[sumBytes:]
	}
	return s, true
}

// RowHasher hashes rows. It keeps a buffer, and serves one goroutine.
type RowHasher struct{ buf []byte }

// rowSeeds are hashed before the bytes of a row; each seed yields 64 bits of
// the hash.
var rowSeeds = [2]uint64{0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f}

// Head hashes an entity row; entity is encoded as in keys. The position of its
// newest snapshot and the choice of timers stored inline are excluded.
func (w *RowHasher) Head(entity string, h *Head) RowHash {
	plain := *h
	plain.Stands, plain.Set = journal.Position{}, ""
	w.begin(ClassEntity, len(entity))
	w.buf = append(w.buf, entity...)
	w.buf = AppendHead(w.buf, &plain)
	return w.end()
}

// Row hashes a row of another class. rest is the part of its key after the
// class.
func (w *RowHasher) Row(class Class, rest, body []byte) RowHash {
	if class == ClassDue {
		body = nil
	}
	w.begin(class, len(rest))
	w.buf = append(append(w.buf, rest...), body...)
	return w.end()
}

// Any hashes a row of any class.
func (w *RowHasher) Any(k Key, body []byte) (RowHash, error) {
	if k.Class != ClassEntity {
		return w.Row(k.Class, k.Suffix, body), nil
	}
	h, err := DecodeHead(body)
	if err != nil {
		return RowHash{}, err
	}
	return w.Head(string(k.Suffix), &h), nil
}

// AddTo adds a row to the sum of its group. Rows without a group are skipped.
func (w *RowHasher) AddTo(s *Sums, k Key, body []byte) error {
	class, ok := SumOf(k)
	if !ok {
		return nil
	}
	h, err := w.Any(k, body)
	if err == nil {
		s[class].Add(h)
	}
	return err
}

// maxHasherBytes bounds the buffer that is kept for the next row.
const maxHasherBytes = 64 << 10

func (w *RowHasher) begin(class Class, rest int) {
	if cap(w.buf) > maxHasherBytes {
		w.buf = nil
	}
	w.buf = append(w.buf[:0], 0, 0, 0, 0, 0, 0, 0, 0, byte(class))
	w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(rest))
}

func (w *RowHasher) end() (h RowHash) {
	binary.LittleEndian.PutUint64(w.buf, rowSeeds[0])
	h.Lo = xxhash.Sum64(w.buf)
	binary.LittleEndian.PutUint64(w.buf, rowSeeds[1])
	h.Hi = xxhash.Sum64(w.buf)
	return h
}

// Place hashes the class and key of a row with a seed. The content is not
// included.
func (w *RowHasher) Place(seed uint64, class Class, rest []byte) uint64 {
	w.begin(class, len(rest))
	w.buf = append(w.buf, rest...)
	binary.LittleEndian.PutUint64(w.buf, seed)
	return xxhash.Sum64(w.buf)
}
