package engine

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// mergeGap is how many zero bytes are written to join two data segments.
const mergeGap = 128

// mergedData returns the payload of the data section with segments that
// nearly touch joined into one, or the payload as it is where that could be
// noticed.
//
// The Go linker cuts a module's data at every few zero bytes, into some
// 20,000 segments, each of which the engine would keep and write; where the
// runtime does, it takes 50 bytes and an allocation or two of each in every
// instance.
//
// Joining cannot be noticed when no two segments overlap, so that their order
// does not matter and what lies between two of them is zero, and when no
// instruction names a segment: those need a data count section.
func (m *parsedModule) mergedData(payload []byte) []byte {
	segments, ok := activeSegments(payload)
	if !ok || m.dataCount >= 0 {
		return payload
	}
	slices.SortStableFunc(segments, func(a, b segment) int { return cmp.Compare(a.offset, b.offset) })
	merged, ok := joinSegments(segments)
	if !ok {
		return payload
	}
	out := binary.AppendUvarint(make([]byte, 0, len(payload)), uint64(len(merged)))
	for _, s := range merged {
		out = append(out, 0, opI32Const)
		out = appendSigned(out, int64(int32(s.offset)))
		out = append(out, opEnd)
		out = binary.AppendUvarint(out, uint64(len(s.data)))
		out = append(out, s.data...)
	}
	return out
}

// joinSegments joins segments in ascending order; it is false when two
// overlap.
func joinSegments(segments []segment) (joined []segment, ok bool) {
	for _, s := range segments {
		var last *segment
		if n := len(joined); n > 0 {
			last = &joined[n-1]
		}
		switch {
		case last != nil && uint64(s.offset) < last.end():
			return nil, false
		case last != nil && uint64(s.offset)-last.end() <= mergeGap:
			last.data = append(last.data, make([]byte, uint64(s.offset)-last.end())...)
			last.data = append(last.data, s.data...)
		default:
			// The capacity is cut so that joining copies instead of writing
			// into the module.
			joined = append(joined, segment{s.offset, s.data[:len(s.data):len(s.data)]})
		}
	}
	return joined, true
}

type segment struct {
	offset uint32
	data   []byte // of the module: not to be written to
}

func (s segment) end() uint64 { return uint64(s.offset) + uint64(len(s.data)) }

// activeSegments reads a data section that admission has accepted. It is
// false unless every segment is for memory 0 at a constant offset.
func activeSegments(payload []byte) (segments []segment, ok bool) {
	c := &cursor{data: payload, end: len(payload)}
	n := c.count("segments", maxDataSegments)
	segments = make([]segment, 0, n)
	for i := 0; i < n && c.ok(); i++ {
		if c.u32("a kind") != 0 || c.byte("an instruction") != opI32Const {
			return nil, false
		}
		offset := uint32(c.signed())
		if c.byte("an end") != opEnd {
			return nil, false
		}
		start := c.skip(c.u32("a size"), "the data")
		segments = append(segments, segment{offset, payload[start:c.pos]})
	}
	return segments, c.ok()
}

// signed reads a signed LEB128 of at most 32 bits, whose length has been
// checked.
func (c *cursor) signed() int32 {
	var value uint32
	for shift := 0; c.ok(); shift += 7 {
		b := c.byte("a number")
		value |= uint32(b&0x7f) << shift
		if b&0x80 == 0 {
			if shift < 25 && b&0x40 != 0 {
				value |= ^uint32(0) << (shift + 7)
			}
			return int32(value)
		}
	}
	return 0
}
