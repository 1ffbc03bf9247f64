package telemetry

import (
	"math"
	"slices"
	"sort"
)

// The native buckets are those of Prometheus' schema 3: eight in each power of
// two, so that one is 1.09 times as wide as the one before. They reach from a
// microsecond, below which all is one bucket, to an hour.
const (
	schema     = 3
	perOctave  = 1 << schema
	lowest     = -20 // of the powers of two, in seconds
	highest    = 12
	nativeKeys = (highest - lowest) * perOctave
)

// zeroBelow is the upper bound of the bucket of what took no time to speak of.
var zeroBelow = math.Ldexp(1, lowest)

// fractions are the lower bounds of the buckets in a power of two, as
// math.Frexp gives them.
var fractions = func() (f [perOctave]float64) {
	for i := range f {
		f[i] = math.Exp2(float64(i)/perOctave - 1)
	}
	return f
}()

// HistogramBounds are the upper bounds of classic buckets together with those of the
// native ones. Each of its cells lies in one bucket of both, so that one count
// serves both. It does not change, and is safe for concurrent use.
type HistogramBounds struct {
	classic []float64
	edges   []float64 // upper bounds of the cells but the last, which has none
	first   [nativeKeys + 2]uint16
	key     []int32 // by cell: its native bucket; the first cells have none
	bucket  []int32 // by cell: its classic bucket
}

// NewHistogramBounds returns bounds with these classic ones, in seconds, which rise.
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

// upperOf is the upper bound of a native bucket; bucket 0 is that of what took
// no time.
func upperOf(k int) float64 {
	return math.Ldexp(fractions[k%perOctave], lowest+1+k/perOctave)
}

// nativeOf is the native bucket of a time in seconds. What takes longer than
// all is in the one after the last.
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

// cell is where a time in seconds is counted.
func (b *HistogramBounds) cell(seconds float64) int {
	c := int(b.first[nativeOf(seconds)])
	for c < len(b.edges) && b.edges[c] < seconds {
		c++
	}
	return c
}
