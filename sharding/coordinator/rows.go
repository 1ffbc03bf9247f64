package coordinator

import "github.com/hostd/hostd/sharding"

// ChecksumVote is one voter's checksum of a shard's rows at some index.
type RowsVote struct {
	Known  bool
	Digest sharding.RowsChecksum
}

// ConsistencyResult is what a replica learns about its own rows from the
// voters' checksums.
type RowsStanding uint8

const (
	// ConsistencyUnknown: too few voters have answered.
	RowsOpen RowsStanding = iota
	// Consistent: a majority of the voters has the same checksum as the
	// replica.
	RowsRight
	// Inconsistent: a majority of the voters agrees on a different checksum.
	RowsWrong
	// ConsistencyDisputed: all voters have answered and no checksum has a
	// majority, so it is unknown which rows are correct.
	RowsSplit
)

// CheckConsistency compares a replica's checksum with the votes of all voters
// of its shard, including its own if it is a voter.
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
