package jsonplan

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// SyntaxError reports where text is not JSON, or does not have the expected
// type. Its message does not repeat the input.
type SyntaxError struct {
	Offset int
	Reason string
	Cause  error // error of a type's own method, or nil
}

func (e *SyntaxError) Error() string {
	return "json: " + e.Reason + " at byte " + strconv.Itoa(e.Offset)
}

func (e *SyntaxError) Unwrap() error { return e.Cause }

// decoder is a position in JSON text. Its methods expect to be at the first
// byte of their token and leave the position at the first byte after it.
type decoder struct {
	data    []byte
	pos     int
	depth   int
	scratch []byte // the last string that had an escape
}

func (d *decoder) fault(reason string) error { return &SyntaxError{Offset: d.pos, Reason: reason} }

func (d *decoder) wrap(err error) error {
	if err == nil {
		return nil
	}
	return &SyntaxError{Offset: d.pos, Reason: err.Error(), Cause: err}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func isDigit(c byte) bool { return c-'0' < 10 }

func (d *decoder) space() {
	for d.pos < len(d.data) && isSpace(d.data[d.pos]) {
		d.pos++
	}
}

// peek returns the next byte, or 0 at the end.
func (d *decoder) peek() byte {
	if d.pos < len(d.data) {
		return d.data[d.pos]
	}
	return 0
}

// null reads null if it is next.
func (d *decoder) null() bool { return d.peek() == 'n' && d.literal("null") }

func (d *decoder) literal(word string) bool {
	if len(d.data)-d.pos < len(word) || string(d.data[d.pos:d.pos+len(word)]) != word {
		return false
	}
	d.pos += len(word)
	return true
}

func (d *decoder) unexpectedToken(wanted string) error {
	if d.pos >= len(d.data) {
		return d.fault("unexpected end")
	}
	return d.fault("expected " + wanted)
}

// open reads '{' or '['. After that, more advances to the next element, or
// reads the matching close and returns false.
func (d *decoder) open(bracket byte, wanted string) error {
	if d.peek() != bracket {
		return d.unexpectedToken(wanted)
	}
	if d.depth++; d.depth > MaxDepth {
		return d.fault("nested too deep")
	}
	d.pos++
	return nil
}

func (d *decoder) more(bracket byte, first bool) (bool, error) {
	d.space()
	c := d.peek()
	switch {
	case c == bracket:
		d.pos++
		d.depth--
		return false, nil
	case first:
		return true, nil
	case c != ',':
		return false, d.unexpectedToken("a comma or the end")
	}
	d.pos++
	d.space()
	return true, nil
}

// name reads a member's name and the colon. The name is valid until the next
// call of text or name.
func (d *decoder) name() ([]byte, error) {
	name, err := d.text()
	if err != nil {
		return nil, err
	}
	d.space()
	if d.peek() != ':' {
		return nil, d.unexpectedToken("a colon")
	}
	d.pos++
	d.space()
	return name, nil
}

// text reads a string. The result is valid until the next call of text or
// name and may be part of the input.
func (d *decoder) text() ([]byte, error) {
	raw, plain, err := d.readQuoted()
	if err != nil || plain {
		return raw, err
	}
	return d.unescape(raw), nil
}

// readQuoted reads a string and checks its escapes. plain means that the string
// has no escapes, so its bytes are its value.
func (d *decoder) readQuoted() (raw []byte, plain bool, err error) {
	if d.peek() != '"' {
		return nil, false, d.unexpectedToken("a string")
	}
	d.pos++
	start, escaped, ascii := d.pos, false, true
	for d.pos < len(d.data) {
		if d.pos = plainText(d.data, d.pos); d.pos == len(d.data) {
			break
		}
		c := d.data[d.pos]
		switch {
		case c == '"':
			raw = d.data[start:d.pos]
			d.pos++
			return raw, !escaped && (ascii || utf8.Valid(raw)), nil
		case c == '\\':
			escaped = true
			if err := d.escape(); err != nil {
				return nil, false, err
			}
		case c < 0x20:
			return nil, false, d.fault("control character in a string")
		default:
			ascii = false
			d.pos++
		}
	}
	return nil, false, d.fault("unexpected end")
}

// escape checks one escape.
func (d *decoder) escape() error {
	d.pos++
	switch d.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		d.pos++
		return nil
	case 'u':
		d.pos++
		if _, ok := hex4(d.data[d.pos:]); !ok {
			return d.unexpectedToken("four hex digits")
		}
		d.pos += 4
		return nil
	}
	return d.unexpectedToken("an escape")
}

func hex4(s []byte) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range s[:4] {
		switch {
		case isDigit(c):
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = (c | 0x20) - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape returns the value of raw, whose escapes were checked. An unpaired
// surrogate and bytes that are not UTF-8 become U+FFFD.
func (d *decoder) unescape(raw []byte) []byte {
	out := d.scratch[:0]
	for i := 0; i < len(raw); {
		c := raw[i]
		switch {
		case c == '\\' && raw[i+1] == 'u':
			r, _ := hex4(raw[i+2:])
			i += 6
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if i+1 < len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
					low, _ := hex4(raw[i+2:])
					pair = utf16.DecodeRune(r, low)
				}
				if pair != utf8.RuneError {
					i += 6
				}
				r = pair
			}
			out = utf8.AppendRune(out, r)
		case c == '\\':
			out = append(out, unescapeChar(raw[i+1]))
			i += 2
		case c < utf8.RuneSelf:
			out = append(out, c)
			i++
		default:
			r, size := utf8.DecodeRune(raw[i:])
			out = utf8.AppendRune(out, r)
			i += size
		}
	}
	d.scratch = out
	return out
}

func unescapeChar(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// number reads a number and reports whether it is written as an integer.
func (d *decoder) number() (text []byte, integer bool, err error) {
	start := d.pos
	if d.peek() == '-' {
		d.pos++
	}
	switch c := d.peek(); {
	case c == '0':
		d.pos++
	case isDigit(c):
		d.digits()
	default:
		return nil, false, d.unexpectedToken("a number")
	}
	integer = true
	if d.peek() == '.' {
		d.pos++
		integer = false
		if !d.digits() {
			return nil, false, d.unexpectedToken("a digit")
		}
	}
	if c := d.peek(); c == 'e' || c == 'E' {
		d.pos++
		integer = false
		if c := d.peek(); c == '+' || c == '-' {
			d.pos++
		}
		if !d.digits() {
			return nil, false, d.unexpectedToken("a digit")
		}
	}
	return d.data[start:d.pos], integer, nil
}

func (d *decoder) digits() bool {
	start := d.pos
	for d.pos < len(d.data) && isDigit(d.data[d.pos]) {
		d.pos++
	}
	return d.pos > start
}

// skip reads any value.
func (d *decoder) skip() error {
	switch c := d.peek(); {
	case c == '"':
		_, _, err := d.readQuoted()
		return err
	case c == '-' || isDigit(c):
		_, _, err := d.number()
		return err
	case c == '{':
		return d.skipAll('{', '}')
	case c == '[':
		return d.skipAll('[', ']')
	case d.literal("null"), d.literal("true"), d.literal("false"):
		return nil
	}
	return d.unexpectedToken("a value")
}

func (d *decoder) skipAll(open, closing byte) error {
	if err := d.open(open, ""); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := d.more(closing, first)
		if err != nil || !more {
			return err
		}
		if open == '{' {
			if _, err := d.name(); err != nil {
				return err
			}
		}
		if err := d.skip(); err != nil {
			return err
		}
	}
}
