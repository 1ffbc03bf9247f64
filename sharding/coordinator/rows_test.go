package coordinator

import (
	"testing"

	"github.com/hostd/hostd/sharding"
)

// A replica is inconsistent only if a majority of all voters agrees on a
// different checksum. While a majority is still possible, the result is
// unknown.
func TestCheckConsistency(t *testing.T) {
	for votes, want := range map[string]map[byte]ConsistencyResult{
		"":      {'a': ConsistencyUnknown},
		"a":     {'a': Consistent, 'b': Inconsistent},
		"?":     {'a': ConsistencyUnknown},
		"aab":   {'a': Consistent, 'b': Inconsistent, 'c': Inconsistent},
		"aa?":   {'a': Consistent, 'b': Inconsistent},
		"ab?":   {'a': ConsistencyUnknown, 'b': ConsistencyUnknown},
		"?b?":   {'b': ConsistencyUnknown},
		"abc":   {'a': ConsistencyDisputed, 'b': ConsistencyDisputed, 'c': ConsistencyDisputed},
		"ab":    {'a': ConsistencyDisputed, 'b': ConsistencyDisputed},
		"a?":    {'a': ConsistencyUnknown},
		"aabb":  {'a': ConsistencyDisputed, 'b': ConsistencyDisputed},
		"aab?":  {'a': ConsistencyUnknown, 'b': ConsistencyUnknown},
		"aaab":  {'a': Consistent, 'b': Inconsistent},
		"aabb?": {'a': ConsistencyUnknown},
		"a?aa?": {'a': Consistent, 'b': Inconsistent},
	} {
		var all []ChecksumVote
		for _, v := range []byte(votes) {
			all = append(all, ChecksumVote{Known: v != '?', Checksum: sharding.RowsChecksum{v}})
		}
		for own, standing := range want {
			if got := CheckConsistency(sharding.RowsChecksum{own}, all); got != standing {
				t.Errorf("%c of %q: %d, want %d", own, votes, got, standing)
			}
		}
	}
}
