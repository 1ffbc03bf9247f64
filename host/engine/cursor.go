package engine

import (
	"unicode/utf8"
)

// cursor reads a bounded stretch of a module. The first fault sticks: every
// read after it returns zero, and loops end by asking ok.
type cursor struct {
	data  []byte // the whole module; positions are offsets into it
	pos   int
	end   int
	where string
	fault *AdmissionError
}

func (c *cursor) ok() bool { return c.fault == nil }

func (c *cursor) left() int { return c.end - c.pos }

// refuse records the first fault.
func (c *cursor) refuse(format string, args ...any) {
	if c.fault == nil {
		c.fault = refuse(c.where, format, args...)
	}
}

func (c *cursor) damaged(what string) {
	c.refuse("the file is cut off or damaged: %s at byte %d; build it again", what, c.pos)
}

func (c *cursor) byte(what string) byte {
	if !c.ok() {
		return 0
	}
	if c.left() < 1 {
		c.damaged(what + " is missing")
		return 0
	}
	b := c.data[c.pos]
	c.pos++
	return b
}

// u32 reads an unsigned LEB128 of at most 32 bits.
func (c *cursor) u32(what string) uint32 {
	var value uint32
	for shift := 0; c.ok(); shift += 7 {
		b := c.byte(what)
		if shift == 28 && b > 0x0f {
			c.damaged(what + " is no 32-bit number")
			return 0
		}
		value |= uint32(b&0x7f) << shift
		if b&0x80 == 0 {
			return value
		}
	}
	return 0
}

// skipSigned steps over a signed LEB128 of at most bits bits.
func (c *cursor) skipSigned(what string, bits int) {
	for size := 0; c.ok(); size++ {
		if size == (bits+6)/7 {
			c.damaged(what + " is too long")
			return
		}
		if c.byte(what)&0x80 == 0 {
			return
		}
	}
}

// number reads how many of something there are and refuses more than limit.
func (c *cursor) number(what string, limit int) int {
	n := c.u32("the number of " + what)
	if int64(n) > int64(limit) {
		c.refuse("%d %s, limit %d", n, what, limit)
		return 0
	}
	return int(n)
}

// count reads the number of entries of a vector. Beyond what number does, it
// refuses one that the bytes left cannot hold at a byte an entry, so that a
// loop over it, and a slice made for it, are bounded by the file.
func (c *cursor) count(what string, limit int) int {
	n := c.number(what, limit)
	if n > c.left() {
		c.damaged("fewer " + what + " than announced")
		return 0
	}
	return n
}

// skip steps over n bytes and returns where they began.
func (c *cursor) skip(n uint32, what string) (start int) {
	start = c.pos
	if !c.ok() {
		return start
	}
	if int64(n) > int64(c.left()) {
		c.damaged(what + " is cut off")
		return start
	}
	c.pos += int(n)
	return start
}

// name reads a UTF-8 name of at most limit bytes.
func (c *cursor) name(what string, limit int) string {
	n := c.u32("the length of " + what)
	if int64(n) > int64(limit) {
		c.refuse("%s has %d bytes, limit %d", what, n, limit)
		return ""
	}
	start := c.skip(n, what)
	if !c.ok() {
		return ""
	}
	text := c.data[start:c.pos]
	if !utf8.Valid(text) {
		c.refuse("%s is not valid UTF-8", what)
		return ""
	}
	return string(text)
}

// done refuses bytes that are left over.
func (c *cursor) done() {
	if c.ok() && c.left() != 0 {
		c.refuse("the file is damaged: %d bytes left over at byte %d; build it again", c.left(), c.pos)
	}
}
