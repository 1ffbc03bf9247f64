package coordinator

import "github.com/hostd/hostd/sharding"

// RowsVote is what one voter of a shard says of its rows as of some index.
type RowsVote struct {
	Known  bool
	Digest sharding.RowsChecksum
}

// RowsStanding is what a replica learns of its rows from the voters'.
type RowsStanding uint8

const (
	// RowsOpen: too few voters have said what they have.
	RowsOpen RowsStanding = iota
	// RowsRight: a majority of the voters has the same.
	RowsRight
	// RowsWrong: a majority of the voters has the same, and it is something else.
	RowsWrong
	// RowsSplit: all voters have said what they have, and no majority has the
	// same: nobody knows which is right.
	RowsSplit
)

// JudgeRows says how a replica with a digest stands to the votes of all voters
// of its shard, its own included where it is one.
func JudgeRows(own sharding.RowsChecksum, votes []RowsVote) RowsStanding {
	count, known := make(map[sharding.RowsChecksum]int), 0
	for _, v := range votes {
		if !v.Known {
			continue
		}
		known++
		if count[v.Digest]++; count[v.Digest] <= len(votes)/2 {
			continue
		}
		if v.Digest == own {
			return RowsRight
		}
		return RowsWrong
	}
	if known == len(votes) && known > 0 {
		return RowsSplit
	}
	return RowsOpen
}
