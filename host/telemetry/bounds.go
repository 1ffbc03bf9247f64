package telemetry

import (
	"math"
	"slices"
	"sort"
)

// The native buckets have schema 3 of Prometheus: eight per power of two, so
// that each bucket is 1.09 times as wide as the previous bucket. They range
// from a microsecond, with a single bucket below it, to an hour.
const (
	schema     = 3
	perOctave  = 1 << schema
	lowest     = -20 // exponent of the smallest power of two, in seconds
	highest    = 12
	nativeKeys = (highest - lowest) * perOctave
)

// zeroBelow is the upper bound of the zero bucket, in seconds.
var zeroBelow = math.Ldexp(1, lowest)

// fractions are the lower bounds of the buckets within a power of two, in the
// range of math.Frexp.
var fractions = func() (f [perOctave]float64) {
	for i := range f {
		f[i] = math.Exp2(float64(i)/perOctave - 1)
	}
	return f
}()

// HistogramBounds merges the upper bounds of classic and native buckets into
// cells. Each cell lies within exactly one bucket of either kind, so that a
// single counter serves both. It is immutable and safe for concurrent use.
type HistogramBounds struct {
	classic []float64
	edges   []float64 // upper bounds of the cells; the last cell has none
	first   [nativeKeys + 2]uint16
	key     []int32 // native bucket by cell; 0 is the zero bucket
	bucket  []int32 // classic bucket by cell
}

// NewHistogramBounds returns bounds with the given classic bounds, which are in
// seconds and ascending.
func NewHistogramBounds(classic []float64) *HistogramBounds {
	b := &HistogramBounds{classic: slices.Clone(classic), edges: slices.Clone(classic)}
	for k := range nativeKeys + 1 {
		b.edges = append(b.edges, upperOf(k))
	}
	slices.Sort(b.edges)
	b.edges = slices.Compact(b.edges)
	for cell := range len(b.edges) + 1 {
		at := math.Inf(1)
		if cell < len(b.edges) {
			at = b.edges[cell]
		}
		b.bucket = append(b.bucket, int32(sort.SearchFloat64s(b.classic, at)))
		b.key = append(b.key, int32(nativeOf(at)))
	}
	for cell := len(b.key) - 1; cell >= 0; cell-- {
		b.first[b.key[cell]] = uint16(cell)
	}
	return b
}

// upperOf returns the upper bound of a native bucket in seconds. Bucket 0 is
// the zero bucket.
func upperOf(k int) float64 {
	return math.Ldexp(fractions[k%perOctave], lowest+1+k/perOctave)
}

// nativeOf returns the native bucket of a duration in seconds. Longer durations
// are in an additional bucket after the last bucket.
func nativeOf(seconds float64) int {
	if seconds <= zeroBelow {
		return 0
	}
	frac, exp := math.Frexp(seconds)
	if exp > highest {
		if frac == 0.5 && exp == highest+1 {
			return nativeKeys
		}
		return nativeKeys + 1
	}
	i := 0
	for step := perOctave / 2; step > 0; step /= 2 {
		if fractions[i+step] < frac {
			i += step
		}
	}
	if fractions[i] < frac {
		i++
	}
	return (exp-1-lowest)*perOctave + i
}

// cell returns the cell of a duration in seconds.
func (b *HistogramBounds) cell(seconds float64) int {
	c := int(b.first[nativeOf(seconds)])
	for c < len(b.edges) && b.edges[c] < seconds {
		c++
	}
	return c
}
