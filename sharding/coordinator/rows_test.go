package coordinator

import (
	"testing"

	"github.com/hostd/hostd/sharding"
)

// A replica is inconsistent only if a majority of all voters agrees on a
// different checksum. While a majority is still possible, the result is
// unknown.
func TestJudgeRows(t *testing.T) {
	for votes, want := range map[string]map[byte]RowsStanding{
		"":      {'a': RowsOpen},
		"a":     {'a': RowsRight, 'b': RowsWrong},
		"?":     {'a': RowsOpen},
		"aab":   {'a': RowsRight, 'b': RowsWrong, 'c': RowsWrong},
		"aa?":   {'a': RowsRight, 'b': RowsWrong},
		"ab?":   {'a': RowsOpen, 'b': RowsOpen},
		"?b?":   {'b': RowsOpen},
		"abc":   {'a': RowsSplit, 'b': RowsSplit, 'c': RowsSplit},
		"ab":    {'a': RowsSplit, 'b': RowsSplit},
		"a?":    {'a': RowsOpen},
		"aabb":  {'a': RowsSplit, 'b': RowsSplit},
		"aab?":  {'a': RowsOpen, 'b': RowsOpen},
		"aaab":  {'a': RowsRight, 'b': RowsWrong},
		"aabb?": {'a': RowsOpen},
		"a?aa?": {'a': RowsRight, 'b': RowsWrong},
	} {
		var all []RowsVote
		for _, v := range []byte(votes) {
			all = append(all, RowsVote{Known: v != '?', Digest: sharding.RowsChecksum{v}})
		}
		for own, standing := range want {
			if got := JudgeRows(sharding.RowsChecksum{own}, all); got != standing {
				t.Errorf("%c of %q: %d, want %d", own, votes, got, standing)
			}
		}
	}
}
