package coordinator

import (
	"testing"

	"github.com/hostd/hostd/sharding"
)

// Only a replica that differs from a majority of all voters, of which each has
// the same, is wrong; nobody is while a majority may still turn up.
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
