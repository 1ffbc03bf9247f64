package coordinator

import "github.com/hostd/hostd/sharding"

// ChecksumVote is one voter's checksum of a shard's rows at some index.
type ChecksumVote struct {
	Known    bool
	Checksum sharding.RowsChecksum
}

// ConsistencyResult is the result of comparing a replica's rows with the
// voters' checksums.
type ConsistencyResult uint8

const (
	// ConsistencyUnknown: too few voters have answered.
	ConsistencyUnknown ConsistencyResult = iota
	// Consistent: a majority of the voters has the same checksum as the
	// replica.
	Consistent
	// Inconsistent: a majority of the voters agrees on a different checksum.
	Inconsistent
	// ConsistencyDisputed: all voters have answered and no checksum has a
	// majority, so it is unknown which rows are correct.
	ConsistencyDisputed
)

// CheckConsistency compares a replica's checksum with the votes of all voters
// of its shard, including its own if it is a voter.
func CheckConsistency(own sharding.RowsChecksum, votes []ChecksumVote) ConsistencyResult {
	count, known := make(map[sharding.RowsChecksum]int), 0
	for _, v := range votes {
		if !v.Known {
			continue
		}
		known++
		if count[v.Checksum]++; count[v.Checksum] <= len(votes)/2 {
			continue
		}
		if v.Checksum == own {
			return Consistent
		}
		return Inconsistent
	}
	if known == len(votes) && known > 0 {
		return ConsistencyDisputed
	}
	return ConsistencyUnknown
}
