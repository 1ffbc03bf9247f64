package schema

import (
	"math"
	"math/bits"
	"strconv"
)

// number is a JSON number: exact where it is an integer of 18 digits or fewer,
// a float64 otherwise, and a decimal where it has as few digits.
type number struct {
	float    float64
	integer  int64
	exact    bool // integer is the value
	mantissa int64
	exponent int
	decimal  bool // mantissa * 10^exponent is the value
}

// digitsMost is how many digits fit an int64 in any case.
const digitsMost = 18

// parseNumber reads a number that is written as JSON has it.
func parseNumber(text []byte) (n number) {
	i, digits, point, scale := 0, 0, false, 0
	negative := text[0] == '-'
	if negative {
		i++
	}
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c == '.':
			point = true
		case c >= '0' && c <= '9':
			if digits++; digits <= digitsMost {
				n.mantissa = n.mantissa*10 + int64(c-'0')
			}
			if point {
				scale--
			}
		default:
			return n.withExponent(text, i+1, digits, scale, negative)
		}
	}
	return n.finish(text, digits, scale, negative)
}

func (n number) withExponent(text []byte, at, digits, scale int, negative bool) number {
	e, err := strconv.Atoi(string(text[at:]))
	if (err != nil || e > 400 || e < -400) && n.mantissa != 0 {
		digits = digitsMost + 1
	}
	return n.finish(text, digits, scale+e, negative)
}

func (n number) finish(text []byte, digits, scale int, negative bool) number {
	if negative {
		n.mantissa = -n.mantissa
	}
	n.exponent, n.decimal = scale, digits <= digitsMost
	for n.decimal && n.exponent < 0 && n.mantissa%10 == 0 && n.mantissa != 0 {
		n.mantissa, n.exponent = n.mantissa/10, n.exponent+1
	}
	if v, ok := scaled(n.mantissa, n.exponent); n.decimal && n.exponent > 0 && ok {
		n.mantissa, n.exponent = v, 0
	}
	if n.decimal && (n.exponent == 0 || n.mantissa == 0) {
		n.integer, n.exact, n.float = n.mantissa, true, float64(n.mantissa)
		return n
	}
	n.float, _ = strconv.ParseFloat(string(text), 64) // beyond the range it is infinite
	return n
}

// whole reports whether it has no fraction.
func (n *number) whole() bool {
	if n.exact {
		return true
	}
	if n.decimal {
		return n.exponent >= 0
	}
	return n.float == math.Trunc(n.float) && (n.float != 0 || n.mantissa == 0)
}

// compare orders two numbers.
func (n *number) compare(m *number) int {
	a, b := n.float, m.float
	if n.exact && m.exact {
		switch {
		case n.integer < m.integer:
			return -1
		case n.integer > m.integer:
			return 1
		}
		return 0
	}
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// multipleOf reports whether n is m times an integer.
func (n *number) multipleOf(m *number) bool {
	if n.decimal && m.decimal {
		a, okA := scaled(n.mantissa, n.exponent-min(n.exponent, m.exponent))
		b, okB := scaled(m.mantissa, m.exponent-min(n.exponent, m.exponent))
		if okA && okB && b != 0 {
			return a%b == 0
		}
	}
	return divides(m.float, n.float)
}

// divides reports whether math.Mod(x, y) is 0, for y above 0, without its loop:
// that takes a turn for each bit by which the exponents differ.
//
// Both are an integer times a power of two, and that of y can be made odd. It
// shares no factor with the powers, so they only decide if x has the larger
// one.
func divides(y, x float64) bool {
	switch {
	case x == 0:
		return true
	case math.IsInf(x, 0) || math.IsInf(y, 0):
		return false
	}
	a, i := parts(math.Abs(x))
	b, j := parts(y)
	return i >= j && a%b == 0
}

// parts returns the odd integer and the exponent of two whose product is v.
func parts(v float64) (odd uint64, exponent int) {
	fraction, exponent := math.Frexp(v)
	odd = uint64(math.Ldexp(fraction, 53))
	zeros := bits.TrailingZeros64(odd)
	return odd >> zeros, exponent - 53 + zeros
}

func scaled(v int64, by int) (int64, bool) {
	for ; by > 0 && v != 0; by-- {
		if v > math.MaxInt64/10 || v < math.MinInt64/10 {
			return 0, false
		}
		v *= 10
	}
	return v, true
}

// fits reports whether digits, with a sign or without, are a number of the
// format.
func (f format) fits(digits []byte) bool {
	negative := len(digits) > 0 && digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 20 || len(digits) > 1 && digits[0] == '0' {
		return false
	}
	var v uint64
	for _, c := range digits {
		d := uint64(c - '0')
		if c < '0' || c > '9' || v > (math.MaxUint64-d)/10 {
			return false
		}
		v = v*10 + d
	}
	switch {
	case f == uint64Format:
		return !negative || v == 0
	case negative:
		return v <= 1<<63
	}
	return v <= math.MaxInt64
}

// holds reports whether an integer is of the format; text is how it is written.
func (f format) holds(n *number, text []byte) bool {
	switch {
	case f == noFormat:
		return true
	case n.exact:
		return f == int64Format || n.integer >= 0
	}
	return f.fits(text)
}
