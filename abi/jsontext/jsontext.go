// Package jsontext parses JSON by the rules that all of hostd's interfaces
// share, and writes the canonical text of a value.
//
// Callers reach an entity through the json member of Connect, plain HTTP, raw
// bytes and the command line. Four separate JSON parsers would disagree about
// integers beyond 2^53, about 5.0, about numbers that no double can represent
// and about unpaired surrogates. Therefore all of them use Canonical. Its
// rules:
//
//   - Integers from -2^63 to 2^64-1 keep all their digits in any notation: 5.0,
//     50e-1 and 5 are the same integer.
//   - Other numbers are IEEE 754 doubles, in the text of RFC 8785. A number beyond
//     the range of a double is rejected.
//   - Unpaired surrogates in strings and duplicate members are rejected.
//   - The text is compact, and members are sorted by the bytes of their names.
//
// The package does no I/O, starts no goroutine and keeps nothing between calls.
package jsontext

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"
)

// MaxDepth limits how deep values may be nested.
const MaxDepth = 10_000

// Limits on the work of sorting members. An object whose members are out of
// order is copied once, so nested objects could be copied once per level.
const (
	sortedPerByte = 64
	leastSorted   = 1 << 20
)

// Error reports where a text is not JSON by the rules of this package. It does
// not repeat the text.
type Error struct {
	Offset int
	Reason string
}

func (e *Error) Error() string { return e.Reason + " at byte " + strconv.Itoa(e.Offset) }

// Canonical returns the canonical text of the single JSON value in text. If
// text is canonical already, it returns text itself without copying.
func Canonical(text []byte) ([]byte, error) {
	s := scanner{text: text, again: true}
	if !s.document() {
		return nil, s.err
	}
	if !s.rewrite {
		return text, nil
	}
	w := scanner{text: text, writing: true, out: make([]byte, 0, len(text)), left: leastSorted + sortedPerByte*len(text)}
	if !w.document() {
		return nil, w.err
	}
	return w.out, nil
}

// IsValid reports whether text is a single JSON value by the rules of this
// package.
func IsValid(text []byte) bool {
	s := scanner{text: text}
	return s.document()
}

// Split checks a text and calls visit for each member of an object, or for each
// element of a list with no name: the value is text[start:end]. For any other
// value it makes no call.
func Split(text []byte, visit func(name []byte, start, end int)) error {
	s := scanner{text: text, visit: visit}
	if !s.document() {
		return s.err
	}
	return nil
}

// scanner scans a text once. It checks the text, and either finds out whether it
// is canonical or writes the canonical text.
//
// Most texts are canonical already, because SDKs and clients write them that
// way. Canonical therefore makes a first pass that writes and copies nothing.
// It makes a second, writing pass only if the first pass has found a deviation.
//
// The members of an object are sorted when the object ends: its output is
// copied to spare and written back in order. Nested objects that are all out of
// order are copied once per level, so the work could be quadratic in the length
// of the text. left limits the copied bytes, and Canonical rejects a text that
// exceeds it. Rejected: building a tree of values, which would allocate memory
// for every text.
type scanner struct {
	text    []byte
	pos     int
	depth   int
	err     *Error
	rewrite bool // the text is not canonical
	again   bool // a second pass follows if the text isn't canonical
	visit   func(name []byte, start, end int)

	writing bool
	out     []byte
	left    int      // bytes that may still be copied to sort members
	members []member // members of the open objects, innermost object last
	spare   []byte
}

// member is a member of an object: its name, and its range in the output, or in
// the text while nothing is written.
type member struct {
	name       []byte
	start, end int
}

func (s *scanner) fail(at int, reason string) bool {
	if s.err == nil {
		s.err = &Error{Offset: at, Reason: reason}
	}
	return false
}

func (s *scanner) failUnexpected() bool {
	if s.pos >= len(s.text) {
		return s.fail(s.pos, "unexpected end of the JSON text")
	}
	return s.fail(s.pos, "unexpected character in the JSON text")
}

// document scans the whole text.
func (s *scanner) document() bool {
	if !utf8.Valid(s.text) {
		return s.fail(0, "the JSON text is not UTF-8")
	}
	s.space()
	if !s.value() {
		return false
	}
	if s.space(); s.pos != len(s.text) {
		return s.failUnexpected()
	}
	return true
}

func (s *scanner) space() {
	for s.pos < len(s.text) {
		if c := s.text[s.pos]; c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return
		}
		s.pos++
		s.rewrite = true
	}
}

func (s *scanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

func (s *scanner) put(text ...byte) {
	if s.writing {
		s.out = append(s.out, text...)
	}
}

func (s *scanner) value() bool {
	switch c := s.peek(); {
	case c == '"':
		_, ok := s.string()
		return ok
	case c == '{':
		return s.object()
	case c == '[':
		return s.list()
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	}
	return s.failUnexpected()
}

func (s *scanner) word(word string) bool {
	if !bytes.HasPrefix(s.text[s.pos:], []byte(word)) {
		return s.failUnexpected()
	}
	s.pos += len(word)
	if s.writing {
		s.out = append(s.out, word...)
	}
	return true
}

func (s *scanner) enter() bool {
	if s.depth++; s.depth > MaxDepth {
		return s.fail(s.pos, "the JSON text is nested too deep")
	}
	s.pos++
	s.space()
	return true
}

// callVisit calls visit for a value of the outermost object or list.
func (s *scanner) callVisit(name []byte, start int) {
	if s.visit != nil && s.depth == 1 {
		s.visit(name, start, s.pos)
	}
}

func (s *scanner) list() bool {
	if !s.enter() {
		return false
	}
	s.put('[')
	for first := true; s.peek() != ']' || !first; first = false {
		if !first {
			s.put(',')
		}
		start := s.pos
		if !s.value() {
			return false
		}
		s.callVisit(nil, start)
		s.space()
		if s.peek() == ']' {
			break
		}
		if s.peek() != ',' {
			return s.failUnexpected()
		}
		s.pos++
		s.space()
	}
	s.pos++
	s.depth--
	s.put(']')
	return true
}

func (s *scanner) object() bool {
	if !s.enter() {
		return false
	}
	s.put('{')
	base, sorted := len(s.members), true
	var last []byte
	for first := true; s.peek() != '}' || !first; first = false {
		if !first {
			s.put(',')
		}
		at := s.pos
		if s.peek() != '"' {
			return s.failUnexpected()
		}
		m := member{start: len(s.out)}
		var ok bool
		if m.name, ok = s.string(); !ok {
			return false
		}
		if last != nil {
			switch order := bytes.Compare(last, m.name); {
			case order == 0:
				return s.fail(at, "a member is duplicated")
			case order > 0:
				sorted = false
			}
		}
		last = m.name
		if s.space(); s.peek() != ':' {
			return s.failUnexpected()
		}
		s.pos++
		s.put(':')
		s.space()
		start := s.pos
		if !s.value() {
			return false
		}
		s.callVisit(m.name, start)
		if !s.again {
			m.end = len(s.out)
			s.members = append(s.members, m)
		}
		s.space()
		if s.peek() == '}' {
			break
		}
		if s.peek() != ',' {
			return s.failUnexpected()
		}
		s.pos++
		s.space()
	}
	switch {
	case sorted:
	case s.again:
		s.rewrite = true // the second pass also finds duplicate members
	case !s.sort(s.members[base:]):
		return false
	}
	if !s.again {
		clear(s.members[base:])
		s.members = s.members[:base]
	}
	s.pos++
	s.depth--
	s.put('}')
	return true
}

// sort sorts the members. While nothing is written, it only looks for duplicate
// names.
func (s *scanner) sort(members []member) bool {
	s.rewrite = true
	start := members[0].start
	slices.SortFunc(members, func(a, b member) int { return bytes.Compare(a.name, b.name) })
	for i := 1; i < len(members); i++ {
		if bytes.Equal(members[i-1].name, members[i].name) {
			return s.fail(s.pos, "a member is duplicated")
		}
	}
	if !s.writing {
		return true
	}
	if s.left -= len(s.out) - start; s.left < 0 {
		return s.fail(s.pos, "objects are nested too deep to be sorted")
	}
	s.spare = append(s.spare[:0], s.out[start:]...)
	s.out = s.out[:start]
	for i, m := range members {
		if i > 0 {
			s.out = append(s.out, ',')
		}
		s.out = append(s.out, s.spare[m.start-start:m.end-start]...)
	}
	return true
}
