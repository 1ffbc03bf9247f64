package schema

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestNumbersAreComparedExactly checks bounds and multiples against exact
// fractions, for 64-bit integers and for decimals of up to 19 digits, in any
// notation.
func TestNumbersAreComparedExactly(t *testing.T) {
	edges := []string{
		"0", "-0", "0.0", "1", "-1", "5.0", "50e-1", "9007199254740991", "9007199254740992", "9007199254740993", "9007199254740992.5", "-9007199254740993",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551615", "1844674407370955161.5",
		"0.1", "0.3", "1e-7", "123456789012345678.9", "1234567890123456789", "1e19", "10000000000000000001", "1e300", "3e300", "1.7976931348623157e308", "5e-324",
	}
	text := func(r *rand.Rand) string {
		if r.IntN(3) == 0 {
			return edges[r.IntN(len(edges))]
		}
		digits := fmt.Sprint(r.Uint64() >> r.IntN(64))
		if len(digits) > 19 {
			digits = digits[:19]
		}
		if at := r.IntN(len(digits) + 1); r.IntN(2) == 0 && at > 0 && at < len(digits) {
			digits = digits[:at] + "." + digits[at:]
		}
		if r.IntN(4) == 0 {
			digits += fmt.Sprintf("e%d", r.IntN(30)-15)
		}
		if r.IntN(3) == 0 {
			digits = "-" + digits
		}
		return digits
	}
	for seed := range uint64(200_000) {
		r := rand.New(rand.NewPCG(seed, 9))
		a, b := text(r), text(r)
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		n, m := parseNumber([]byte(a)), parseNumber([]byte(b))
		if got := n.compare(&m); got < 0 != (x.Cmp(y) < 0) || got > 0 != (x.Cmp(y) > 0) {
			t.Fatalf("%s and %s compare as %d, want %d", a, b, got, x.Cmp(y))
		}
		if n.equal(&m) != (x.Cmp(y) == 0) || !n.equal(&n) {
			t.Fatalf("%s and %s are equal: %v", a, b, n.equal(&m))
		}
		if n.whole() != x.IsInt() {
			t.Fatalf("%s is whole: %v", a, n.whole())
		}
		if y.Sign() > 0 {
			if got, want := n.multipleOf(&m), new(big.Rat).Quo(x, y).IsInt(); got != want {
				t.Fatalf("%s is a multiple of %s: %v", a, b, got)
			}
		}
	}
}

// TestBoundsOfManyDigits checks that the bounds of a schema are not rounded.
func TestBoundsOfManyDigits(t *testing.T) {
	for _, c := range []struct {
		schema, value string
		ok            bool
	}{
		{`{"maximum":9223372036854775806}`, "9223372036854775806", true},
		{`{"maximum":9223372036854775806}`, "9223372036854775807", false},
		{`{"exclusiveMinimum":18446744073709551614}`, "18446744073709551615", true},
		{`{"exclusiveMinimum":18446744073709551614}`, "18446744073709551614", false},
		{`{"minimum":-9223372036854775807}`, "-9223372036854775808", false},
		{`{"minimum":9007199254740992.5}`, "9007199254740993", true},
		{`{"multipleOf":3}`, "9223372036854775806", true},
		{`{"multipleOf":3}`, "9223372036854775807", false},
		{`{"multipleOf":0.01}`, "12345678901234567.89", true},
		{`{"multipleOf":0.01}`, "12345678901234567.891", false},
	} {
		found := mustCompile(t, c.schema).Check([]byte(c.value))
		err := fmt.Sprint(found)
		if (len(found) == 0) != c.ok {
			t.Errorf("%s of %s: %s", c.schema, c.value, err)
		}
		if !c.ok && strings.Contains(c.schema, "maximum") && !strings.Contains(err, "9223372036854775806") {
			t.Errorf("the text does not have the bound: %q", err)
		}
	}
}
