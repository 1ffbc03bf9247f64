package wasm

import "bytes"

// Segment is an active data segment: initial bytes of the memory.
type Segment struct {
	Offset uint32
	Data   []byte // part of the module; read-only
}

// End returns the address after the segment.
func (s Segment) End() uint64 { return uint64(s.Offset) + uint64(len(s.Data)) }

// activeSegments parses a data section that admission has accepted. ok is false
// unless every segment initializes memory 0 at a constant offset.
func activeSegments(payload []byte) (segments []Segment, ok bool) {
	c := NewCursor(payload)
	n := c.count("segments", maxDataSegments)
	segments = make([]Segment, 0, n)
	for i := 0; i < n && c.OK(); i++ {
		if c.U32("a kind") != 0 || c.Byte("an instruction") != OpI32Const {
			return nil, false
		}
		offset := uint32(c.readSigned())
		if c.Byte("an end") != OpEnd {
			return nil, false
		}
		start := c.Skip(c.U32("a size"), "the data")
		segments = append(segments, Segment{offset, payload[start:c.Pos]})
	}
	return segments, c.OK()
}

// readSigned reads a signed LEB128 of at most 32 bits whose length was already
// checked.
func (c *Cursor) readSigned() int32 {
	var value uint32
	for shift := 0; c.OK(); shift += 7 {
		b := c.Byte("a number")
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

// CutData separates a prepared module from its initial data, which the engine
// writes itself. So the same code serves instances that begin with an image and
// need no data written. The returned data is a copy. A module keeps its data if
// instructions refer to data segments or if their offsets are not constant;
// then data is nil.
func CutData(prepared []byte) (code []byte, data []Segment) {
	c := NewCursor(prepared)
	c.Pos = len(Magic) + len(Version)
	for c.OK() && c.Remaining() > 0 {
		began := c.Pos
		id := c.Byte("a section id")
		payload := c.Skip(c.U32("a section's size"), "a section")
		switch {
		case !c.OK() || id == SectionDataCount:
			return prepared, nil
		case id == SectionData:
			segments, ok := activeSegments(bytes.Clone(prepared[payload:c.Pos]))
			if !ok {
				return prepared, nil
			}
			return append(prepared[:began:began], prepared[c.Pos:]...), segments
		}
	}
	return prepared, nil
}
