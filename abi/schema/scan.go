package schema

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// fault ends a walk early, independently of the schema.
type fault uint8

const (
	noFault fault = iota
	notJSON
	tooDeep
	tooLong // the check needs too many steps
	// enough means that the maximum number of violations has been found.
	enough
	interrupted
)

var faultTexts = [...]string{
	notJSON: "is not JSON text",
	tooDeep: "is nested too deep",
	tooLong: "needs more validation steps than are allowed for its size",
}

// walker checks a text against a compiled schema.
//
// Nodes check the payloads of clients before they call a guest. A check must be
// cheap, its cost must have a bound that a module's author cannot exceed, and
// all nodes must give the same answer. Therefore the walker parses the text and
// checks it in the same walk. It builds no tree, allocates nothing for a matching
// text without escapes, and does not rely on an earlier check that the text is
// JSON.
//
// Most values are visited once. If a schema applies further schemas to its own
// value (allOf, anyOf, oneOf, not, if), each of them walks that value again from
// its start. Nested alternatives can multiply these walks, so everything that
// the walker does costs steps, and the walk ends with the fault tooLong once the
// steps of the text are used up. Steps are counted instead of time, because the
// result must not depend on the speed or the load of a node.
//
// The first walk only decides whether the text matches, and ends at the first
// mismatch. If the text does not match, explain makes a second walk with the
// remaining steps, in which violations is set. That walk continues after each
// mismatch and collects violations, whose paths and texts need memory and time.
type walker struct {
	text  []byte
	pos   int
	depth int
	left  int // remaining steps
	pause int // remaining steps at the next call of Options.Pause
	fault fault
	Options

	violations *report // nil while only the result matters
}

func newWalker(text []byte, o Options) walker {
	steps := leastSteps + stepsPerByte*len(text)
	return walker{text: text, left: steps, pause: steps - PauseSteps, Options: o}
}

// stop ends the walk.
func (w *walker) stop(f fault) bool {
	if w.fault == noFault {
		w.fault = f
	}
	return false
}

// spend takes steps, and reports whether enough were left.
func (w *walker) spend(steps int) bool {
	if w.left -= steps; w.left < 0 {
		return w.stop(tooLong)
	}
	if w.fault != noFault {
		return false
	}
	if w.left < w.pause {
		w.pause = w.left - PauseSteps
		if w.Pause != nil && !w.Pause() {
			return w.stop(interrupted)
		}
	}
	return true
}

// whole checks that the text is a single value that matches.
func (w *walker) whole(n *node) bool {
	if !utf8.Valid(w.text) {
		return w.stop(notJSON)
	}
	w.space()
	fits := w.value(n)
	if w.fault != noFault || !fits && w.violations == nil {
		return false
	}
	if w.space(); w.pos != len(w.text) {
		return w.stop(notJSON)
	}
	return fits && w.fault == noFault
}

func (w *walker) space() {
	start := w.pos
	for w.pos < len(w.text) {
		if c := w.text[w.pos]; c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			break
		}
		w.pos++
	}
	if n := w.pos - start; n >= 8 {
		w.spend(n / 8)
	}
}

// peek returns the next byte, or 0 at the end.
func (w *walker) peek() byte {
	if w.pos < len(w.text) {
		return w.text[w.pos]
	}
	return 0
}

// take skips the byte c if it is next, and reports whether it was.
func (w *walker) take(c byte) bool {
	if w.peek() != c {
		return false
	}
	w.pos++
	return true
}

// enter and leave change the depth around a value.
func (w *walker) enter() bool {
	if w.depth++; w.depth > MaxValueDepth {
		return w.stop(tooDeep)
	}
	return true
}

func (w *walker) leave() { w.depth-- }

// skip skips a value that has no schema.
func (w *walker) skip() bool {
	if !w.spend(1) {
		return false
	}
	ok := false
	switch w.peek() {
	case '{':
		return w.skipAll('}', true)
	case '[':
		return w.skipAll(']', false)
	case '"':
		_, _, ok = w.string()
	case 't', 'f', 'n':
		ok = w.word()
	default:
		_, _, ok = w.digits()
	}
	return ok
}

// skipAll skips the members of an object or the items of a list.
func (w *walker) skipAll(end byte, named bool) bool {
	if !w.enter() {
		return false
	}
	w.pos++
	if w.space(); w.take(end) {
		w.leave()
		return true
	}
	for {
		w.space()
		if named {
			if _, _, ok := w.name(); !ok {
				return false
			}
		}
		if !w.skip() {
			return false
		}
		w.space()
		switch {
		case w.take(end):
			w.leave()
			return true
		case !w.take(','):
			return w.stop(notJSON)
		}
	}
}

// name reads a member's name and the colon after it.
func (w *walker) name() (raw []byte, escaped, ok bool) {
	if w.peek() != '"' {
		return nil, false, w.stop(notJSON)
	}
	if raw, escaped, ok = w.string(); !ok {
		return nil, false, false
	}
	if w.space(); !w.take(':') {
		return nil, false, w.stop(notJSON)
	}
	w.space()
	return raw, escaped, true
}

// string reads a string, and returns the text between its quotes.
func (w *walker) string() (raw []byte, escaped, ok bool) {
	start := w.pos + 1
	for i := start; i < len(w.text); i++ {
		switch c := w.text[i]; {
		case c == '"':
			w.pos = i + 1
			steps := (i - start) / 16
			if escaped {
				steps *= 3
			}
			return w.text[start:i], escaped, w.spend(steps)
		case c < 0x20:
			return nil, false, w.stop(notJSON)
		case c == '\\':
			escaped = true
			if i++; i == len(w.text) {
				return nil, false, w.stop(notJSON)
			}
			switch w.text[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if _, is := hex4(w.text[i+1:]); !is {
					return nil, false, w.stop(notJSON)
				}
				i += 4
			default:
				return nil, false, w.stop(notJSON)
			}
		}
	}
	return nil, false, w.stop(notJSON)
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b[:4]), 16, 32)
	return rune(v), err == nil
}

// unescape returns the value of a string with escapes; an unpaired surrogate
// becomes U+FFFD.
func unescape(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c != '\\' {
			out = append(out, c)
			continue
		}
		i++
		switch c = raw[i]; c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, _ := hex4(raw[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				low, is := rune(0), false
				if i+2 < len(raw) && raw[i+1] == '\\' && raw[i+2] == 'u' {
					low, is = hex4(raw[i+3:])
				}
				if r = utf16.DecodeRune(r, low); is && r != utf8.RuneError {
					i += 6
				}
			}
			out = utf8.AppendRune(out, r)
			continue
		}
		out = append(out, c)
	}
	return out
}

// word reads one of the literals true, false and null.
func (w *walker) word() bool {
	for _, word := range [...]string{"true", "false", "null"} {
		if len(w.text)-w.pos >= len(word) && string(w.text[w.pos:w.pos+len(word)]) == word {
			w.pos += len(word)
			return true
		}
	}
	return w.stop(notJSON)
}

// digits reads a number, and reports whether it is written as an integer.
func (w *walker) digits() (raw []byte, integer, ok bool) {
	start := w.pos
	w.take('-')
	if !w.take('0') && !w.run() {
		return nil, false, w.stop(notJSON)
	}
	integer = true
	if w.take('.') {
		if integer = false; !w.run() {
			return nil, false, w.stop(notJSON)
		}
	}
	if c := w.peek(); c == 'e' || c == 'E' {
		integer = false
		w.pos++
		if !w.take('-') {
			w.take('+')
		}
		if !w.run() {
			return nil, false, w.stop(notJSON)
		}
	}
	return w.text[start:w.pos], integer, w.spend((w.pos - start) / 16)
}

// run reads one or more digits.
func (w *walker) run() bool {
	start := w.pos
	for w.pos < len(w.text) && w.text[w.pos] >= '0' && w.text[w.pos] <= '9' {
		w.pos++
	}
	return w.pos > start
}
