package schema

import (
	"bytes"
	"math"
	"math/bits"
	"strconv"
)

// number is a JSON number. It is exact if its digits, without leading and
// trailing zeros, form an integer below 2^64. That is true of all integers and
// doubles that modules receive. Any other number is stored as a float64.
type number struct {
	float    float64
	negative bool
	mantissa uint64
	exponent int
	decimal  bool // mantissa * 10^exponent, with the sign, is the value
}

// parseNumber parses a JSON number.
func parseNumber(text []byte) (n number) {
	i, point, scale, zeros := 0, false, 0, 0
	n.decimal = true
	if n.negative = text[0] == '-'; n.negative {
		i++
	}
	exponent := 0
	for ; i < len(text) && text[i] != 'e' && text[i] != 'E'; i++ {
		c := text[i]
		if c == '.' {
			point = true
			continue
		}
		if point {
			scale--
		}
		if zeros++; c == '0' {
			continue // a zero counts only if another digit follows it
		}
		for ; zeros > 0 && n.decimal; zeros-- {
			digit := uint64(0)
			if zeros == 1 {
				digit = uint64(c - '0')
			}
			n.append(digit)
		}
		zeros = 0
	}
	if i < len(text) {
		e, err := strconv.Atoi(string(text[i+1:]))
		if exponent = e; err != nil || e > 400 || e < -400 {
			n.decimal = n.decimal && n.mantissa == 0
		}
	}
	if n.exponent = scale + zeros + exponent; n.mantissa == 0 && n.decimal {
		n.exponent = 0
	}
	if n.decimal && n.exponent == 0 && n.mantissa < 1<<53 {
		if n.float = float64(n.mantissa); n.negative {
			n.float = -n.float
		}
		return n
	}
	n.float, _ = strconv.ParseFloat(string(text), 64) // infinite if the number is beyond the range
	return n
}

// append appends a digit, as long as the digits are exact.
func (n *number) append(digit uint64) {
	if n.mantissa > (math.MaxUint64-digit)/10 {
		n.decimal = false
		return
	}
	n.mantissa = n.mantissa*10 + digit
}

// integer returns the absolute value of an integer below 2^64.
func (n *number) integer() (v uint64, ok bool) {
	if !n.decimal || n.exponent < 0 || n.exponent > 19 {
		return 0, false
	}
	high, v := bits.Mul64(n.mantissa, powersOf10[n.exponent])
	return v, high == 0
}

// powersOf10 are the powers of 10 below 2^64.
var powersOf10 = func() (all [20]uint64) {
	all[0] = 1
	for i := range all[1:] {
		all[i+1] = 10 * all[i]
	}
	return all
}()

// whole reports whether it has no fraction.
func (n *number) whole() bool {
	if n.decimal {
		return n.exponent >= 0
	}
	return n.float == math.Trunc(n.float) && (n.float != 0 || n.mantissa == 0)
}

// compare orders two numbers.
func (n *number) compare(m *number) int {
	if !n.decimal || !m.decimal {
		return compareFloats(n.float, m.float)
	}
	sign := func(n *number) int {
		switch {
		case n.mantissa == 0:
			return 0
		case n.negative:
			return -1
		}
		return 1
	}
	a, b := sign(n), sign(m)
	if a != b || a == 0 {
		return a - b
	}
	return a * n.compareDigits(m)
}

// equal reports whether compare returns 0, at a fraction of its cost, because
// an enum may have 1,024 numbers. No mantissa ends with a zero, so equal values
// have equal mantissas and exponents.
func (n *number) equal(m *number) bool {
	if !n.decimal || !m.decimal {
		return n.float == m.float
	}
	return n.mantissa == m.mantissa && (n.mantissa == 0 || n.exponent == m.exponent && n.negative == m.negative)
}

func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// compareDigits compares the absolute values of two non-zero decimals: by the
// position of the first digit, and then digit by digit.
func (n *number) compareDigits(m *number) int {
	var bufA, bufB [20]byte
	a, b := strconv.AppendUint(bufA[:0], n.mantissa, 10), strconv.AppendUint(bufB[:0], m.mantissa, 10)
	if first := len(a) + n.exponent - len(b) - m.exponent; first != 0 {
		return first
	}
	return bytes.Compare(a, b) // neither ends with a zero
}

// multipleOf reports whether n is m times an integer.
func (n *number) multipleOf(m *number) bool {
	if !n.decimal || !m.decimal {
		return divides(m.float, n.float)
	}
	v, by := n.mantissa, n.exponent-m.exponent
	for ; by < 0; by++ { // the mantissa has at most 20 digits
		if v == 0 {
			return true
		}
		if v%10 != 0 {
			return false
		}
		v /= 10
	}
	return timesPowerOf10(v, uint64(by), m.mantissa) == 0
}

// timesPowerOf10 returns v * 10^by modulo m, by repeated squaring.
func timesPowerOf10(v, by, m uint64) uint64 {
	times := func(a, b uint64) uint64 {
		high, low := bits.Mul64(a, b)
		return bits.Rem64(high, low, m)
	}
	v %= m
	for power := 10 % m; by > 0; by >>= 1 {
		if by&1 != 0 {
			v = times(v, power)
		}
		power = times(power, power)
	}
	return v
}

// divides reports whether math.Mod(x, y) is 0, for y above 0. It avoids the
// loop of math.Mod, which needs one iteration per bit by which the exponents
// differ.
//
// Both numbers are an odd integer times a power of two. The odd part of y has
// no factor in common with the powers of two, so the powers matter only in one
// respect: x needs at least the power of y.
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

// parts returns the odd integer and the power of two whose product is v.
func parts(v float64) (odd uint64, exponent int) {
	fraction, exponent := math.Frexp(v)
	odd = uint64(math.Ldexp(fraction, 53))
	zeros := bits.TrailingZeros64(odd)
	return odd >> zeros, exponent - 53 + zeros
}

// fits reports whether digits, with or without a sign, are a number of the
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

// holds reports whether an integer is in the range of the format.
func (f format) holds(n *number) bool {
	if f == noFormat {
		return true
	}
	v, ok := n.integer()
	switch {
	case !ok:
		return false
	case f == uint64Format:
		return !n.negative || v == 0
	case n.negative:
		return v <= 1<<63
	}
	return v <= math.MaxInt64
}
