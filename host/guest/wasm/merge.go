package wasm

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
func (m *Metered) mergedData(payload []byte) []byte {
	segments, ok := ActiveSegments(payload)
	if !ok || m.DataCount >= 0 {
		return payload
	}
	slices.SortStableFunc(segments, func(a, b Segment) int { return cmp.Compare(a.Offset, b.Offset) })
	merged, ok := joinSegments(segments)
	if !ok {
		return payload
	}
	out := binary.AppendUvarint(make([]byte, 0, len(payload)), uint64(len(merged)))
	for _, s := range merged {
		out = append(out, 0, OpI32Const)
		out = AppendSigned(out, int64(int32(s.Offset)))
		out = append(out, OpEnd)
		out = binary.AppendUvarint(out, uint64(len(s.Data)))
		out = append(out, s.Data...)
	}
	return out
}

// joinSegments joins segments in ascending order; it is false when two
// overlap.
func joinSegments(segments []Segment) (joined []Segment, ok bool) {
	for _, s := range segments {
		var last *Segment
		if n := len(joined); n > 0 {
			last = &joined[n-1]
		}
		switch {
		case last != nil && uint64(s.Offset) < last.End():
			return nil, false
		case last != nil && uint64(s.Offset)-last.End() <= mergeGap:
			last.Data = append(last.Data, make([]byte, uint64(s.Offset)-last.End())...)
			last.Data = append(last.Data, s.Data...)
		default:
			// The capacity is cut so that joining copies instead of writing
			// into the module.
			joined = append(joined, Segment{Offset: s.Offset, Data: s.Data[:len(s.Data):len(s.Data)]})
		}
	}
	return joined, true
}
