package guest

// stream is a sequence of pseudo-random numbers: SplitMix64 (Steele, Lea and
// Flood, "Fast splittable pseudorandom number generators", 2014). The same seed
// gives the same numbers on every node and in every version. It is not
// cryptographically secure.
type stream struct{ state uint64 }

func (s *stream) next() uint64 {
	s.state += 0x9e3779b97f4a7c15
	z := s.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// fill writes numbers of the stream to dst, little endian. It consumes whole
// numbers, so the rest of the last one is discarded.
func (s *stream) fill(dst []byte) {
	for len(dst) > 0 {
		value := s.next()
		n := min(8, len(dst))
		for i := range n {
			dst[i] = byte(value >> (8 * i))
		}
		dst = dst[n:]
	}
}

// A call has two streams. A language's runtime asks for randomness whenever
// it likes, and with a single stream this would shift the numbers that the
// guest's own code gets. systemStream separates the seeds of the two streams.
const systemStream = 0x6a09e667f3bcc908

// The constant time and seed that a guest sees while it evolves state. The time
// is not 0 because the runtime of a Go guest does not start at 0.
const (
	fixedInstant = 946_684_800_000_000_000 // 2000-01-01T00:00:00Z in unix nanoseconds
	fixedSeed    = 0x243f6a8885a308d3
)

// systemSeed returns the seed of a call's system stream.
func systemSeed(seed uint64) uint64 { return seed ^ systemStream }
