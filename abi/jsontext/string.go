package jsontext

import (
	"unicode/utf16"
	"unicode/utf8"
)

// string scans a string and returns its value, which stays valid during the
// scan.
func (s *scanner) string() (value []byte, ok bool) {
	start := s.pos + 1
	for i := start; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			value = s.text[start:i]
			s.pos = i + 1
			if s.writing {
				s.out = append(append(append(s.out, '"'), value...), '"')
			}
			return value, true
		case c < 0x20:
			return nil, s.fail(i, "control character in a string")
		case c == '\\':
			return s.readEscaped(start, i)
		}
	}
	return nil, s.fail(len(s.text), "unexpected end of the JSON text")
}

// readEscaped is string for a string whose first escape is at i.
func (s *scanner) readEscaped(start, i int) (value []byte, ok bool) {
	value = append(make([]byte, 0, i-start+32), s.text[start:i]...)
	for i < len(s.text) {
		c := s.text[i]
		switch {
		case c == '"':
			s.pos = i + 1
			written := AppendString(nil, value)
			if s.writing {
				s.out = append(s.out, written...)
			} else if string(written) != string(s.text[start-1:s.pos]) {
				s.rewrite = true
			}
			return value, true
		case c < 0x20:
			return nil, s.fail(i, "control character in a string")
		case c != '\\':
			value = append(value, c)
			i++
		default:
			r, size := unescape(s.text[i+1:])
			if size == 0 {
				return nil, s.fail(i, "not a JSON escape")
			}
			if utf16.IsSurrogate(r) {
				return nil, s.fail(i, "half of a surrogate pair")
			}
			value = utf8.AppendRune(value, r)
			i += 1 + size
		}
	}
	return nil, s.fail(len(s.text), "unexpected end of the JSON text")
}

// unescape decodes an escape after its backslash, and both parts of a surrogate
// pair together; size is 0 if it is not a valid escape.
func unescape(text []byte) (r rune, size int) {
	if len(text) == 0 {
		return 0, 0
	}
	switch c := text[0]; c {
	case '"', '\\', '/':
		return rune(c), 1
	case 'b':
		return '\b', 1
	case 'f':
		return '\f', 1
	case 'n':
		return '\n', 1
	case 'r':
		return '\r', 1
	case 't':
		return '\t', 1
	case 'u':
		r, ok := hex4(text[1:])
		if !ok {
			return 0, 0
		}
		if utf16.IsSurrogate(r) && len(text) >= 11 && text[5] == '\\' && text[6] == 'u' {
			if low, ok := hex4(text[7:]); ok {
				if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
					return pair, 11
				}
			}
		}
		return r, 5
	}
	return 0, 0
}

func hex4(text []byte) (r rune, ok bool) {
	if len(text) < 4 {
		return 0, false
	}
	for _, c := range text[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// AppendString appends a string, which must be UTF-8, as a JSON string.
func AppendString[T string | []byte](dst []byte, value T) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := range len(value) {
		c := value[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, value[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, value[start:]...), '"')
}
