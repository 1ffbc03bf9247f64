package journal

import (
	"crypto/sha256"
	"encoding/binary"
)

// Chain computes the links of an entity's hash chain. The link after event s is
//
//	SHA-256(previous link || canonical bytes of event s)
//
// and the link before event 1 is zero. Canonical bytes, little endian:
//
//	sequence u64, term u64, recordedAt i64, module digest [32],
//	len u32 type, len u32 payload, len u32 command id, count u32 of tags,
//	each tag len u32 and bytes
//
// A Chain owns a scratch buffer and serves one goroutine.
type Chain struct{ buf []byte }

// Next returns the link after the record's i-th event, given the link before
// it.
func (c *Chain) Next(prev Hash, r *Record, i int) Hash {
	e := &r.Events[i]
	b := append(c.buf[:0], prev[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Expected)+uint64(i)+1)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Term))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.RecordedAt))
	b = append(b, r.Module[:]...)
	b = appendLong(b, e.Type)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Payload)))
	b = append(b, e.Payload...)
	b = appendLong(b, string(r.CommandID))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Tags)))
	for _, t := range e.Tags {
		b = appendLong(b, t)
	}
	c.buf = b
	return sha256.Sum256(b)
}

// After returns the link after all of the record's events, starting at r.Prev.
func (c *Chain) After(r *Record) Hash {
	h := r.Prev
	for i := range r.Events {
		h = c.Next(h, r, i)
	}
	return h
}

func appendLong(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

// HashCommand returns the fingerprint that distinguishes a retry of a command
// from a different command with the same id: the first eight bytes of the
// SHA-256 over the length and bytes of the name, followed by the payload.
// scratch is reused and returned.
func HashCommand(scratch []byte, name string, payload []byte) (uint64, []byte) {
	scratch = appendLong(scratch[:0], name)
	scratch = append(scratch, payload...)
	sum := sha256.Sum256(scratch)
	return binary.LittleEndian.Uint64(sum[:8]), scratch
}
