package wasm

import (
	"unicode/utf8"
)

// Cursor reads a bounded part of a module. After the first fault every read
// returns zero, so loops must check OK to end.
type Cursor struct {
	data  []byte // the whole module; Pos and end are offsets into it
	Pos   int    // offset of the next byte
	end   int
	where string
	fault *AdmissionError
}

// NewCursor returns a cursor over all of data.
func NewCursor(data []byte) *Cursor { return &Cursor{data: data, end: len(data)} }

// OK reports whether no fault has occurred yet.
func (c *Cursor) OK() bool { return c.fault == nil }

// Remaining returns the number of bytes left.
func (c *Cursor) Remaining() int { return c.end - c.Pos }

// Refuse records the first fault.
func (c *Cursor) Refuse(format string, args ...any) {
	if c.fault == nil {
		c.fault = Refuse(c.where, format, args...)
	}
}

func (c *Cursor) refuseDamaged(what string) {
	c.Refuse("the file is truncated or damaged: %s at byte %d; build it again", what, c.Pos)
}

// Byte reads a byte. In all methods, what names the item for the text of a
// fault.
func (c *Cursor) Byte(what string) byte {
	if !c.OK() {
		return 0
	}
	if c.Remaining() < 1 {
		c.refuseDamaged(what + " is missing")
		return 0
	}
	b := c.data[c.Pos]
	c.Pos++
	return b
}

// U32 reads an unsigned LEB128 of at most 32 bits.
func (c *Cursor) U32(what string) uint32 {
	var value uint32
	for shift := 0; c.OK(); shift += 7 {
		b := c.Byte(what)
		if shift == 28 && b > 0x0f {
			c.refuseDamaged(what + " is not a 32-bit number")
			return 0
		}
		value |= uint32(b&0x7f) << shift
		if b&0x80 == 0 {
			return value
		}
	}
	return 0
}

// skipSigned skips a signed LEB128 of at most bits bits.
func (c *Cursor) skipSigned(what string, bits int) {
	for size := 0; c.OK(); size++ {
		if size == (bits+6)/7 {
			c.refuseDamaged(what + " is too long")
			return
		}
		if c.Byte(what)&0x80 == 0 {
			return
		}
	}
}

// number reads a count and rejects it if it exceeds limit.
func (c *Cursor) number(what string, limit int) int {
	n := c.U32("the number of " + what)
	if int64(n) > int64(limit) {
		c.Refuse("%d %s, limit %d", n, what, limit)
		return 0
	}
	return int(n)
}

// count reads the number of entries of a vector. Unlike number, it also
// rejects a count that exceeds the remaining bytes, because each entry takes
// at least one byte. So the size of the file bounds a loop over the entries
// and a slice for them.
func (c *Cursor) count(what string, limit int) int {
	n := c.number(what, limit)
	if n > c.Remaining() {
		c.refuseDamaged("fewer " + what + " than announced")
		return 0
	}
	return n
}

// Skip skips n bytes and returns their start.
func (c *Cursor) Skip(n uint32, what string) (start int) {
	start = c.Pos
	if !c.OK() {
		return start
	}
	if int64(n) > int64(c.Remaining()) {
		c.refuseDamaged(what + " is truncated")
		return start
	}
	c.Pos += int(n)
	return start
}

// name reads a UTF-8 name of at most limit bytes.
func (c *Cursor) name(what string, limit int) string {
	n := c.U32("the length of " + what)
	if int64(n) > int64(limit) {
		c.Refuse("%s has %d bytes, limit %d", what, n, limit)
		return ""
	}
	start := c.Skip(n, what)
	if !c.OK() {
		return ""
	}
	text := c.data[start:c.Pos]
	if !utf8.Valid(text) {
		c.Refuse("%s is not valid UTF-8", what)
		return ""
	}
	return string(text)
}

// done rejects trailing bytes.
func (c *Cursor) done() {
	if c.OK() && c.Remaining() != 0 {
		c.Refuse("the file is damaged: %d extra bytes at byte %d; build it again", c.Remaining(), c.Pos)
	}
}
