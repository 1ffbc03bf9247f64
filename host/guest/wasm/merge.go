package wasm

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// mergeGap is the maximum number of zero bytes written to join two data
// segments.
const mergeGap = 128

// mergedData returns the payload of the data section with nearly adjacent
// segments joined, or the unchanged payload if the module could notice that.
//
// The Go linker splits a module's data at every few zero bytes into some 20,000
// segments. The engine would have to keep and write each of them, and the
// runtime would need 50 bytes and one or two allocations for each segment in
// every instance.
//
// A module cannot notice joining under two conditions. No two segments may
// overlap, so that their order is irrelevant and the bytes between them are
// zero. And no instruction may refer to a segment, which would require a data
// count section.
func (m *Metered) mergedData(payload []byte) []byte {
	segments, ok := activeSegments(payload)
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

// joinSegments joins segments in ascending order. ok is false if two of them
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
			// The capacity is clipped so that append copies instead of writing into the
			// module.
			joined = append(joined, Segment{Offset: s.Offset, Data: s.Data[:len(s.Data):len(s.Data)]})
		}
	}
	return joined, true
}
