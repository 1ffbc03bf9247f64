package hostd

import (
	"math"
	"testing"
)

func TestInstantArithmeticSaturates(t *testing.T) {
	const first, last = Instant(math.MinInt64), Instant(math.MaxInt64)
	for _, c := range []struct {
		from Instant
		d    Duration
		want Instant
	}{
		{0, Second, 1e9}, {1e9, -Second, 0}, {1, -2, -1}, {Never, 0, Never}, {Never, 1, Never}, {Never - 1, 1, Never}, {1e18, math.MaxInt64, Never},
		{first, -1, first}, {first, math.MinInt64, first}, {last, math.MinInt64, -1}, {first, math.MaxInt64, -1}, {1.7e18, 8e9 * Second, Never},
	} {
		if got := c.from.Add(c.d); got != c.want {
			t.Errorf("%d + %d is %d, want %d", c.from, c.d, got, c.want)
		}
	}
	for _, c := range []struct {
		to, from Instant
		want     Duration
	}{
		{5, 3, 2}, {3, 5, -2}, {last, -1, math.MaxInt64}, {last, first, math.MaxInt64}, {first, 1, math.MinInt64}, {first, last, math.MinInt64},
		{-1, first, math.MaxInt64}, {first, first, 0}, {0, first, math.MaxInt64}, {-2, first, math.MaxInt64 - 1},
	} {
		if got := c.to.Sub(c.from); got != c.want {
			t.Errorf("%d - %d is %d, want %d", c.to, c.from, got, c.want)
		}
	}
}
