package jsontext

import (
	"math"
	"strconv"
)

// plainDigits is the number of decimal digits that always fit in 64 bits.
const plainDigits = 18

// number scans a number.
func (s *scanner) number() bool {
	start := s.pos
	if s.peek() == '-' {
		s.pos++
	}
	zero := s.peek() == '0'
	whole := s.digits()
	if whole == 0 || zero && whole > 1 {
		s.pos = start
		return s.failUnexpected()
	}
	plain := true
	if s.peek() == '.' {
		plain = false
		s.pos++
		if s.digits() == 0 {
			return s.failUnexpected()
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		plain = false
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if s.digits() == 0 {
			return s.failUnexpected()
		}
	}
	literal := s.text[start:s.pos]
	if plain && whole <= plainDigits && (literal[0] != '-' || !zero) {
		if s.writing {
			s.out = append(s.out, literal...)
		}
		return true
	}
	var room [32]byte
	written, ok := appendLiteral(room[:0], literal)
	switch {
	case !ok:
		return s.fail(start, "number beyond the range of a double")
	case s.writing:
		s.out = append(s.out, written...)
	case string(written) != string(literal):
		s.rewrite = true
	}
	return true
}

func (s *scanner) digits() (count int) {
	for s.pos < len(s.text) && s.text[s.pos] >= '0' && s.text[s.pos] <= '9' {
		s.pos++
		count++
	}
	return count
}

// appendLiteral appends the canonical text of a JSON number; false if it is
// beyond the range of a double.
func appendLiteral(dst, literal []byte) ([]byte, bool) {
	if negative, magnitude, ok := Integer(literal); ok {
		if negative && magnitude > 0 {
			dst = append(dst, '-')
		}
		return strconv.AppendUint(dst, magnitude, 10), true
	}
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil {
		return dst, false
	}
	return appendDouble(dst, f), true
}

// Integer returns the value of a JSON number in any notation, if it is an
// integer from -2^63 to 2^64-1.
func Integer(literal []byte) (negative bool, magnitude uint64, ok bool) {
	digits := literal
	if digits[0] == '-' {
		negative, digits = true, digits[1:]
	}
	// The value is digits, without the point, times 10^scale.
	scale, end := 0, len(digits)
	for i, c := range digits {
		if c == 'e' || c == 'E' {
			exponent, err := strconv.Atoi(string(digits[i+1:]))
			if err != nil { // replaced by an exponent larger than any that matters
				exponent = math.MaxInt32
				if digits[i+1] == '-' {
					exponent = math.MinInt32
				}
			}
			scale, end = exponent, i
			break
		}
	}
	digits = digits[:end]
	point := len(digits)
	for i, c := range digits {
		if c == '.' {
			point = i
			break
		}
	}
	if point < len(digits) {
		scale -= len(digits) - point - 1
	}
	for len(digits) > 0 && scale < 0 { // trailing zeros that the scale removes
		last := digits[len(digits)-1]
		if last == '.' {
			digits = digits[:len(digits)-1]
			continue
		}
		if last != '0' {
			break
		}
		digits = digits[:len(digits)-1]
		scale++
	}
	for _, c := range digits {
		if c == '.' {
			continue
		}
		if magnitude, ok = timesTen(magnitude, uint64(c-'0')); !ok {
			return false, 0, false
		}
	}
	if magnitude == 0 {
		return false, 0, true
	}
	if scale < 0 || scale > 20 {
		return false, 0, false
	}
	for ; scale > 0; scale-- {
		if magnitude, ok = timesTen(magnitude, 0); !ok {
			return false, 0, false
		}
	}
	return negative, magnitude, !negative || magnitude <= 1<<63
}

func timesTen(v, digit uint64) (uint64, bool) {
	if v > (math.MaxUint64-digit)/10 {
		return 0, false
	}
	return v*10 + digit, true
}

// AppendFloat appends a finite double. It is written as an integer if it is an
// integer of at most 64 bits, and otherwise in the form of RFC 8785.
func AppendFloat(dst []byte, f float64) []byte {
	if f == math.Trunc(f) && f >= -(1<<63) && f < 1<<64 {
		if f == 0 {
			return append(dst, '0') // -0 is written as 0, too
		}
		return strconv.AppendFloat(dst, f, 'f', 0, 64)
	}
	return appendDouble(dst, f)
}

// appendDouble appends a double as JavaScript formats it, which RFC 8785
// requires.
func appendDouble(dst []byte, f float64) []byte {
	abs := math.Abs(f)
	switch {
	case f == 0:
		return append(dst, '0')
	case abs >= 1e-6 && abs < 1e21:
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	if n := len(dst); n-start > 4 && dst[n-3] == '-' && dst[n-2] == '0' { // e-09 to e-9
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
