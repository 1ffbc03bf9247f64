package raftgroup

import "github.com/hostd/hostd/sharding"

// fenceHolds says whether a proposal made in the term of the fence may enter
// the log in term.
func fenceHolds(fence sharding.Term, term uint64) bool {
	return uint64(fence) == term || planted == 6
}
