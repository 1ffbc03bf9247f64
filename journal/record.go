package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/hostd/hostd/sharding"
)

const recordVersion = 1

// MaxRecordBytes bounds an encoded record: the events and the reply of one
// command, with space for names.
const MaxRecordBytes = 2 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendRecord appends the encoding of r to dst and returns it. Layout, little
// endian:
//
//	length u32 of body, crc32c u32 of body, body:
//	  version u8, flags u8
//	  entity type (len u8), entity id (len u16)
//	  term u64, recordedAt i64, expected u64
//	  prev [32], module [32], command hash u64
//	  command id (len u8), reply (len u32)
//	  event count u16, each: type (len u8), payload (len u32), tag count u8, each tag (len u8)
//	  sections: kind u8, len u32, bytes, to the end
//
// The names must be valid and within their bounds; AppendRecord panics on a
// length that its field cannot hold.
func AppendRecord(dst []byte, r *Record) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = append(dst, recordVersion, r.Flags)
	dst = append8(dst, r.Entity.Type)
	dst = append16(dst, r.Entity.ID)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Term))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.RecordedAt))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Expected))
	dst = append(dst, r.Prev[:]...)
	dst = append(dst, r.Module[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, r.CommandHash)
	dst = append8(dst, string(r.CommandID))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(r.Reply)))
	dst = append(dst, r.Reply...)
	if len(r.Events) > 0xffff {
		panic("journal: too many events in a record")
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(r.Events)))
	for i := range r.Events {
		e := &r.Events[i]
		dst = append8(dst, e.Type)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(e.Payload)))
		dst = append(dst, e.Payload...)
		if len(e.Tags) > 0xff {
			panic("journal: too many tags on an event")
		}
		dst = append(dst, byte(len(e.Tags)))
		for _, t := range e.Tags {
			dst = append8(dst, t)
		}
	}
	dst = appendSections(dst, r.Sections)
	body := dst[start+8:]
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(body)))
	binary.LittleEndian.PutUint32(dst[start+4:], crc32.Checksum(body, castagnoli))
	return dst
}

// RecordBytes returns the length of r's encoding.
func RecordBytes(r *Record) int {
	n := 8 + 2 + 1 + len(r.Entity.Type) + 2 + len(r.Entity.ID) + recordFixedBytes + 1 + len(r.CommandID) + 4 + len(r.Reply) + 2
	for i := range r.Events {
		e := &r.Events[i]
		n += 1 + len(e.Type) + 4 + len(e.Payload) + 1 + len(e.Tags)
		for _, t := range e.Tags {
			n += len(t)
		}
	}
	return n + sectionsBytes(r.Sections)
}

func append8(b []byte, s string) []byte {
	if len(s) > 0xff {
		panic("journal: name over 255 bytes")
	}
	b = append(b, byte(len(s)))
	return append(b, s...)
}

func append16(b []byte, s string) []byte {
	if len(s) > 0xffff {
		panic("journal: name over 65,535 bytes")
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// SplitRecord verifies the length and checksum of the first record in b. It
// returns the record's bytes, including its framing, and the rest. Both alias
// b.
func SplitRecord(b []byte) (raw, rest []byte, err error) {
	if len(b) < 8 {
		return nil, nil, fmt.Errorf("%w: %d bytes instead of a record header", ErrDamaged, len(b))
	}
	n := binary.LittleEndian.Uint32(b)
	if n > MaxRecordBytes || int(n) > len(b)-8 {
		return nil, nil, fmt.Errorf("%w: length %d in %d bytes", ErrDamaged, n, len(b)-8)
	}
	raw = b[:8+n]
	if crc32.Checksum(raw[8:], castagnoli) != binary.LittleEndian.Uint32(raw[4:]) {
		return nil, nil, fmt.Errorf("%w: checksum mismatch", ErrDamaged)
	}
	return raw, b[8+n:], nil
}

// Decode decodes raw, one complete record as returned by SplitRecord. Byte
// slices of r alias raw; strings are copies. It reuses r.Events, r.Sections,
// and names that equal those of the previous record, so decoding an entity's
// records allocates one string each, the command id.
func (r *Record) Decode(raw []byte) error {
	if len(raw) < 10 {
		return fmt.Errorf("%w: short record", ErrDamaged)
	}
	d := decoder{b: raw[8:]}
	if v := d.u8(); v != recordVersion {
		return fmt.Errorf("%w: version %d", ErrUnsupported, v)
	}
	r.Flags = d.u8()
	r.Entity.Type = same(r.Entity.Type, d.take(int(d.u8())))
	r.Entity.ID = same(r.Entity.ID, d.take(int(d.u16())))
	r.Term = sharding.Term(d.u64())
	r.RecordedAt = int64(d.u64())
	r.Expected = Sequence(d.u64())
	copy(r.Prev[:], d.take(32))
	copy(r.Module[:], d.take(32))
	r.CommandHash = d.u64()
	r.CommandID = CommandID(d.take(int(d.u8())))
	r.Reply = d.take(int(d.u32()))
	n := int(d.u16())
	before := r.Events
	r.Events = r.Events[:0]
	for i := 0; i < n && !d.bad; i++ {
		var e Event
		if i < len(before) {
			e.Type = before[i].Type
		}
		e.Type = same(e.Type, d.take(int(d.u8())))
		e.Payload = d.take(int(d.u32()))
		for t := int(d.u8()); t > 0 && !d.bad; t-- {
			e.Tags = append(e.Tags, string(d.take(int(d.u8()))))
		}
		r.Events = append(r.Events, e)
	}
	if d.bad {
		return fmt.Errorf("%w: fields run past the record's end", ErrDamaged)
	}
	r.Sections = r.Sections[:0]
	for last := SectionKind(0); len(d.b) > 0; {
		s, rest, err := nextSection(d.b, last)
		if err != nil {
			return err
		}
		r.Sections = append(r.Sections, s)
		d.b, last = rest, s.Kind
	}
	return nil
}

// same returns s if it equals b, and otherwise a copy of b.
func same(s string, b []byte) string {
	if s == string(b) {
		return s
	}
	return string(b)
}

// decoder decodes fields from the front of b. After the first short read it is
// bad and returns zeros.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.b) {
		d.bad = true
		return nil
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) u8() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}
