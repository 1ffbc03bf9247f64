package bench

import (
	"math/bits"
	"time"
)

// Histogram counts durations in log-linear buckets: every power of two of
// nanoseconds has 128 buckets, so the error of a value is below 0.8 percent,
// and below a microsecond up to 128 microseconds. It covers 0 to about 18
// minutes; a longer duration counts as the longest. The zero value is ready to
// use. A Histogram is not safe for concurrent use: give each goroutine its
// own Histogram and Merge them.
type Histogram struct {
	counts [bucketCount]uint64
	total  uint64
	sum    time.Duration
	max    time.Duration
}

const (
	subBits     = 7
	subBuckets  = 1 << subBits // buckets of one power of two
	longest     = time.Duration(1<<40 - 1)
	bucketCount = (40 - subBits + 1) * subBuckets
)

// bucketOf returns the bucket of a duration from 0 to longest.
func bucketOf(d time.Duration) int {
	v := uint64(d)
	if v < subBuckets {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return (shift+1)*subBuckets + int(v>>shift) - subBuckets
}

// upperOf returns the largest duration of a bucket.
func upperOf(bucket int) time.Duration {
	if bucket < subBuckets {
		return time.Duration(bucket)
	}
	shift := bucket/subBuckets - 1
	return time.Duration(uint64(bucket%subBuckets+subBuckets+1)<<shift) - 1
}

// Record counts a duration; a negative duration counts as 0.
func (h *Histogram) Record(d time.Duration) {
	d = min(max(d, 0), longest)
	h.counts[bucketOf(d)]++
	h.total++
	h.sum += d
	h.max = max(h.max, d)
}

// Merge adds the counts of other.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
	h.sum += other.sum
	h.max = max(h.max, other.max)
}

// Count returns how many durations were recorded.
func (h *Histogram) Count() uint64 { return h.total }

// Max returns the longest duration, exactly.
func (h *Histogram) Max() time.Duration { return h.max }

// Mean returns the exact average, or 0 for an empty histogram.
func (h *Histogram) Mean() time.Duration {
	if h.total == 0 {
		return 0
	}
	return h.sum / time.Duration(h.total)
}

// Quantile returns an upper bound for the q-quantile, with q in [0, 1]. It
// returns 0 for an empty histogram.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := uint64(q*float64(h.total) + 0.5)
	rank = min(max(rank, 1), h.total)
	var seen uint64
	for i, n := range h.counts {
		if seen += n; seen >= rank {
			return min(upperOf(i), h.max)
		}
	}
	return h.max
}
